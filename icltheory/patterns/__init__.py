"""In-context classification of patterns by nonlinear transformers (Li et al.).

Data, models, probes and pruning of "How Do Nonlinear Transformers Learn and Generalize
in In-Context Learning?" (2024), with closed forms to hold them against. A
:class:`PatternTask` is a source of prompts, a :class:`PatternLearner` a predictor, and
``error(predictor, task, num_examples, key=key)`` its errors. Sizes that the slides do
not state are inferred from their figures; docstrings say where.

Stability: provisional.
"""

from icltheory.patterns.conditions import Condition, Conditions
from icltheory.patterns.measures import Errors, Scores, error, scores
from icltheory.patterns.model import (
    DeepPatternTransformer,
    PatternLearner,
    PatternTransformer,
)
from icltheory.patterns.probes import (
    GainRatio,
    NeuronParts,
    Projections,
    activation_shares,
    gain_ratio,
    neuron_parts,
    pattern_logits,
    projections,
    prune_neurons,
)
from icltheory.patterns.reduced import ReducedTraining, reduced_training
from icltheory.patterns.shift import is_feasible, out_of_domain_patterns
from icltheory.patterns.task import PatternPrompt, PatternTask
from icltheory.patterns.task_sets import all_tasks, circulant_tasks, covers, task_ratio
from icltheory.patterns.theorems import (
    Constants,
    Setting,
    hinge,
    in_domain_conditions,
    margin,
    miss_probability,
    out_of_domain_conditions,
    pruned_hinge,
    pruning_conditions,
)
from icltheory.patterns.training import Training, loss_gradients, train

__all__ = [
    "Condition",
    "Conditions",
    "Constants",
    "DeepPatternTransformer",
    "Errors",
    "GainRatio",
    "NeuronParts",
    "PatternLearner",
    "PatternPrompt",
    "PatternTask",
    "PatternTransformer",
    "Projections",
    "ReducedTraining",
    "Scores",
    "Setting",
    "Training",
    "activation_shares",
    "all_tasks",
    "circulant_tasks",
    "covers",
    "error",
    "gain_ratio",
    "hinge",
    "in_domain_conditions",
    "is_feasible",
    "loss_gradients",
    "margin",
    "miss_probability",
    "neuron_parts",
    "out_of_domain_conditions",
    "out_of_domain_patterns",
    "pattern_logits",
    "projections",
    "prune_neurons",
    "pruned_hinge",
    "pruning_conditions",
    "reduced_training",
    "scores",
    "task_ratio",
    "train",
]
