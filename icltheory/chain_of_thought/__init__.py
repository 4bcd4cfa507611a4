"""Chain-of-thought and in-context inference on tasks of several steps (Li et al.).

A task is K transition matrices over M states. Examples walk along them with errors; the
query asks for the path that takes the likeliest state at every step. Chain of thought
votes step by step, plain in-context learning votes for the final state at once, and the
two differ where errors on the way add up to a popular wrong answer (Condition 1).

A task is a source of prompts, ``ChainOfThought`` and ``DirectAnswer`` are predictors,
and ``error(predictor, task, num_examples)`` is how often they are wrong.

Example:
    >>> task = ReasoningTask(slide_transitions())
    >>> [round(float(x), 4) for x in task.composed_transition.ravel()]
    [0.56, 0.44, 0.64, 0.36]
    >>> task.stepwise_paths.tolist(), task.condition_1.tolist()
    ([[0, 0, 1], [1, 1, 0]], [False, True])
    >>> [round(float(x), 4) for x in task.path_probabilities()]
    [0.36, 0.48]
    >>> names = "tau", "tau_o", "rho", "rho_o", "icl_error_limit"
    >>> print(*(f"{name} {getattr(task, name):.4f}" for name in names))
    tau 0.3600 tau_o 0.5600 rho 0.3333 rho_o 0.2143 icl_error_limit 0.5000
    >>> votes = error(DirectAnswer(), task, 41).votes
    >>> print(f"wrong {votes.wrong:.4f} tied {votes.tied:.4f}")
    wrong 0.4070 tied 0.0000

Stability: provisional.
"""

from icltheory.chain_of_thought.alphabet import Alphabet, span_residual
from icltheory.chain_of_thought.answers import (
    ChainOfThought,
    DirectAnswer,
    ReasoningError,
    error,
    wrong_answers,
)
from icltheory.chain_of_thought.attention import (
    AttentionMasses,
    ReasoningAttention,
    attention_masses,
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
from icltheory.chain_of_thought.tasks import (
    PermutationTasks,
    ReasoningPrompt,
    ReasoningTask,
)
from icltheory.chain_of_thought.training import (
    ReasoningTraining,
    prompt_loss,
    train_attention,
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
    "ChainOfThought",
    "DirectAnswer",
    "PermutationTasks",
    "ReasoningAttention",
    "ReasoningError",
    "ReasoningPrompt",
    "ReasoningTask",
    "ReasoningTraining",
    "VoteError",
    "attention_masses",
    "contested_transitions",
    "cot_conditions",
    "cot_error_bound",
    "decay_bound",
    "error",
    "faithful_transitions",
    "icl_conditions",
    "icl_error_bound",
    "popular_answer_transitions",
    "prompt_loss",
    "slide_transitions",
    "span_residual",
    "sufficient_examples",
    "train_attention",
    "training_conditions",
    "vote_error",
    "wrong_answers",
]
