"""Bounds in the supersample setting, for any in-context learner with bounded losses.

Of each of N pairs of demonstrations a fair coin chooses one for the prompt; the model
that reads the prompt is the learner. :func:`supersample_losses` evaluates a learner,
and each of the bounds is a calculator of the losses alone: no weight, gradient or
distribution enters.
"""

from icltheory._public import shown
from icltheory.bounds.supersample.difference import (
    loss_difference_bound,
    optimal_difference_bound,
    variance_bound,
)
from icltheory.bounds.supersample.evaluated import (
    binary_kl_bound,
    evaluated_bound,
    weighted_bound,
)
from icltheory.bounds.supersample.predictions import prediction_bound
from icltheory.bounds.supersample.records import SupersampleBound
from icltheory.bounds.supersample.sampling import (
    ClippedSquaredError,
    sign_error,
    supersample_losses,
)

__all__ = [
    "ClippedSquaredError",
    "SupersampleBound",
    "binary_kl_bound",
    "evaluated_bound",
    "loss_difference_bound",
    "optimal_difference_bound",
    "prediction_bound",
    "sign_error",
    "supersample_losses",
    "variance_bound",
    "weighted_bound",
]

__dir__ = shown(__name__)
