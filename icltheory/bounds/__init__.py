"""Generalisation bounds of in-context learning by mutual information.

The calculators of :mod:`~icltheory.bounds.information` take plain numbers and matrices,
from any learner. :func:`generalization_bound` (Theorem 2 of Yao et al.) puts them
together for a stack of linear attention, as printed and as provable: every choice that
the printed form leaves open has a name, infinity is a value with a reason, and what is
no bound says so.

:mod:`icltheory.bounds.supersample` bounds any in-context learner with losses in [0, 1],
trained transformers among them: :func:`supersample_losses` evaluates it, and
:func:`loss_difference_bound` and its kin need the losses alone.

Stability: stable.
"""

from icltheory._public import shown
from icltheory.bounds.gaussian import (
    anisotropic_term,
    gaussian_kl,
    held_out_term,
    isotropic_term,
)
from icltheory.bounds.generalization import AS_PRINTED, generalization_bound
from icltheory.bounds.information import (
    bound_from_expectations,
    optimal_prior_variance,
    trajectory_information,
    xu_raginsky,
)
from icltheory.bounds.planning import planned_bound, required_samples
from icltheory.bounds.records import REASONS, Assumption, Bound
from icltheory.bounds.shrinkage import ledoit_wolf_intensity
from icltheory.bounds.smoothing import SmoothingBound, smoothing_bound
from icltheory.bounds.supersample import (
    ClippedSquaredError,
    SupersampleBound,
    binary_kl_bound,
    evaluated_bound,
    loss_difference_bound,
    optimal_difference_bound,
    prediction_bound,
    sign_error,
    supersample_losses,
    variance_bound,
    weighted_bound,
)

__all__ = [
    "AS_PRINTED",
    "REASONS",
    "Assumption",
    "Bound",
    "ClippedSquaredError",
    "SmoothingBound",
    "SupersampleBound",
    "anisotropic_term",
    "binary_kl_bound",
    "evaluated_bound",
    "gaussian_kl",
    "held_out_term",
    "isotropic_term",
    "ledoit_wolf_intensity",
    "loss_difference_bound",
    "optimal_difference_bound",
    "prediction_bound",
    "sign_error",
    "supersample_losses",
    "variance_bound",
    "weighted_bound",
    "bound_from_expectations",
    "optimal_prior_variance",
    "planned_bound",
    "required_samples",
    "smoothing_bound",
    "generalization_bound",
    "trajectory_information",
    "xu_raginsky",
]

__dir__ = shown(__name__)
