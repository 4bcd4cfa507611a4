"""Chain-of-thought and in-context inference on tasks of several steps (Li et al.).

A task is K transition matrices over M states. Examples walk along them with errors; the
query asks for the path that takes the likeliest state at every step. Chain of thought
votes step by step, plain in-context learning votes for the final state at once, and the
two differ where errors on the way add up to a popular wrong answer (Condition 1).

Stability: provisional.
"""

from icltheory.chain_of_thought.alphabet import (
    Alphabet,
    span_residual,
    training_alphabet,
    unseen_alphabet,
)
from icltheory.chain_of_thought.attention import (
    ReasoningAttention,
    initial_attention,
    matching_attention,
)
from icltheory.chain_of_thought.conditions import (
    cot_conditions,
    icl_conditions,
    training_conditions,
)
from icltheory.chain_of_thought.examples import (
    contested_transitions,
    faithful_transitions,
    popular_answer_transitions,
    slide_transitions,
)
from icltheory.chain_of_thought.inference import (
    AttentionMasses,
    Inference,
    attention_masses,
    cot_infer,
    icl_infer,
)
from icltheory.chain_of_thought.measures import (
    condition_1,
    icl_error_limit,
    rho,
    rho_o,
    tau,
    tau_o,
)
from icltheory.chain_of_thought.prompts import (
    ReasoningPrompt,
    ReasoningTask,
    sample_training_prompt,
)
from icltheory.chain_of_thought.training import (
    ReasoningTraining,
    prompt_loss,
    train_attention,
)
from icltheory.chain_of_thought.transitions import (
    composed_transition,
    most_probable_paths,
    path_probabilities,
    stepwise_paths,
)
from icltheory.chain_of_thought.votes import (
    VoteError,
    cot_error_bound,
    decay_bound,
    icl_error_bound,
    sufficient_examples,
    vote_error,
)

__all__ = [
    "Alphabet",
    "AttentionMasses",
    "Inference",
    "ReasoningAttention",
    "ReasoningPrompt",
    "ReasoningTask",
    "ReasoningTraining",
    "VoteError",
    "attention_masses",
    "composed_transition",
    "condition_1",
    "contested_transitions",
    "cot_error_bound",
    "cot_infer",
    "decay_bound",
    "faithful_transitions",
    "icl_error_bound",
    "icl_error_limit",
    "icl_infer",
    "initial_attention",
    "matching_attention",
    "most_probable_paths",
    "path_probabilities",
    "popular_answer_transitions",
    "prompt_loss",
    "rho",
    "rho_o",
    "sample_training_prompt",
    "slide_transitions",
    "span_residual",
    "stepwise_paths",
    "sufficient_examples",
    "tau",
    "tau_o",
    "training_conditions",
    "cot_conditions",
    "icl_conditions",
    "train_attention",
    "training_alphabet",
    "unseen_alphabet",
    "vote_error",
]
