r"""Softmax attention on orthonormal features: gradient, training path and phases.

Inputs are K orthonormal features :math:`v_k`, drawn with probabilities :math:`p_k`;
labels are :math:`y = \langle w, x \rangle` with :math:`w \sim N(0, I)`; one layer of
attention with the matrix Q answers :math:`\hat y = \sum_i y_i \operatorname{softmax}_i
(x_i^\top Q x_{query})` and learns by gradient descent on half the mean squared error.
Then only the logits :math:`v_n^\top Q v_k` matter.
"""

from icltheory.regression.features.attention import (
    feature_attention,
    feature_gradient,
    feature_losses,
)
from icltheory.regression.features.balanced import (
    balanced_attention,
    balanced_loss,
    balanced_time,
    loss_asymptote,
)
from icltheory.regression.features.descent import FeaturePath, feature_descent
from icltheory.regression.features.phases import FeaturePhases, feature_phases
from icltheory.regression.features.population import FeaturePopulation

__all__ = [
    "FeaturePath",
    "FeaturePhases",
    "FeaturePopulation",
    "balanced_attention",
    "balanced_loss",
    "balanced_time",
    "feature_attention",
    "feature_descent",
    "feature_gradient",
    "feature_losses",
    "feature_phases",
    "loss_asymptote",
]
