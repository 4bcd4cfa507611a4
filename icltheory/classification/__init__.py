"""In-context classification of patterns by nonlinear transformers (Li et al.).

Data, models, probes and pruning of "How Do Nonlinear Transformers Learn and Generalize
in In-Context Learning?" (2024), with closed forms to hold them against. Sizes that the
slides do not state are inferred from their figures; docstrings say where.
"""

from icltheory.classification.alignment import (
    GainRatio,
    NeuronParts,
    gain_ratio,
    neuron_parts,
)
from icltheory.classification.deep import DeepPatternTransformer
from icltheory.classification.induction import (
    copying_ratio,
    copying_score,
    in_context_score,
    prefix_matching_score,
    previous_token_score,
)
from icltheory.classification.induction_circuit import (
    InductionCircuit,
    induction_circuit,
)
from icltheory.classification.induction_heads import (
    HeadScores,
    head_copying,
    head_scores,
)
from icltheory.classification.model import PatternTransformer
from icltheory.classification.neurons import prune_neurons
from icltheory.classification.oracles import (
    hinge,
    margin,
    miss_probability,
    pruned_hinge,
)
from icltheory.classification.patterns import PatternTask
from icltheory.classification.probes import (
    Projections,
    pattern_logits,
    projections,
)
from icltheory.classification.prompts import PatternPrompt
from icltheory.classification.shift import (
    is_feasible,
    out_of_domain_patterns,
    shift_coefficients,
)
from icltheory.classification.tasks import (
    all_tasks,
    circulant_tasks,
    covers,
    held_out_tasks,
    task_ratio,
)
from icltheory.classification.theorems import (
    Condition,
    Conditions,
    theorem_1,
    theorem_2,
    theorem_3,
)
from icltheory.classification.training import Scores, Training, scores, train

__all__ = [
    "Condition",
    "Conditions",
    "DeepPatternTransformer",
    "GainRatio",
    "HeadScores",
    "InductionCircuit",
    "NeuronParts",
    "PatternPrompt",
    "PatternTask",
    "PatternTransformer",
    "Projections",
    "Scores",
    "Training",
    "all_tasks",
    "circulant_tasks",
    "copying_ratio",
    "copying_score",
    "covers",
    "gain_ratio",
    "head_copying",
    "head_scores",
    "held_out_tasks",
    "hinge",
    "in_context_score",
    "induction_circuit",
    "is_feasible",
    "margin",
    "miss_probability",
    "neuron_parts",
    "out_of_domain_patterns",
    "pattern_logits",
    "prefix_matching_score",
    "previous_token_score",
    "projections",
    "prune_neurons",
    "pruned_hinge",
    "scores",
    "shift_coefficients",
    "task_ratio",
    "theorem_1",
    "theorem_2",
    "theorem_3",
    "train",
]
