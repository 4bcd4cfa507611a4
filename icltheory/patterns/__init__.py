"""In-context classification of patterns by nonlinear transformers (Li et al.).

Data, models, probes and pruning of "How Do Nonlinear Transformers Learn and Generalize
in In-Context Learning?" (2024), with closed forms to hold them against. Sizes that the
slides do not state are inferred from their figures; docstrings say where.

Stability: provisional.
"""

from icltheory.patterns.activation import activation_shares, active_neurons
from icltheory.patterns.alignment import (
    GainRatio,
    NeuronParts,
    gain_ratio,
    neuron_parts,
)
from icltheory.patterns.closed_forms import (
    hinge,
    margin,
    miss_probability,
    pruned_hinge,
)
from icltheory.patterns.conditions import (
    Condition,
    Conditions,
    in_domain_conditions,
    out_of_domain_conditions,
    pruning_conditions,
)
from icltheory.patterns.deep import DeepPatternTransformer
from icltheory.patterns.gradients import loss_gradients
from icltheory.patterns.learners import PatternLearner, PatternSampler
from icltheory.patterns.model import PatternTransformer
from icltheory.patterns.neurons import prune_neurons
from icltheory.patterns.probes import (
    Projections,
    pattern_logits,
    projections,
)
from icltheory.patterns.prompts import PatternPrompt
from icltheory.patterns.reduced import ReducedTraining, reduced_training
from icltheory.patterns.shift import (
    is_feasible,
    out_of_domain_patterns,
    shift_coefficients,
)
from icltheory.patterns.task import PatternTask
from icltheory.patterns.task_sets import (
    all_tasks,
    circulant_tasks,
    covers,
    held_out_tasks,
    task_ratio,
)
from icltheory.patterns.training import Scores, Training, scores, train

__all__ = [
    "Condition",
    "Conditions",
    "DeepPatternTransformer",
    "GainRatio",
    "NeuronParts",
    "PatternLearner",
    "PatternPrompt",
    "PatternSampler",
    "PatternTask",
    "PatternTransformer",
    "Projections",
    "ReducedTraining",
    "Scores",
    "Training",
    "activation_shares",
    "active_neurons",
    "all_tasks",
    "circulant_tasks",
    "covers",
    "gain_ratio",
    "held_out_tasks",
    "hinge",
    "is_feasible",
    "loss_gradients",
    "margin",
    "miss_probability",
    "neuron_parts",
    "out_of_domain_patterns",
    "pattern_logits",
    "projections",
    "prune_neurons",
    "pruned_hinge",
    "reduced_training",
    "scores",
    "shift_coefficients",
    "task_ratio",
    "in_domain_conditions",
    "out_of_domain_conditions",
    "pruning_conditions",
    "train",
]
