"""Generalisation bounds of in-context learning by mutual information.

The functions of :mod:`~icltheory.bounds.information` take plain numbers and matrices,
from any learner. For Theorem 2 of Yao et al. :func:`noisy_steps` computes the steps of
a stack of linear attention on its demonstrations, and each form of the theorem is a
function of them: :func:`isotropic_bound`, with a prior :func:`anisotropic_bound` and
:func:`held_out_bound`, and :func:`printed_bound`. Infinity is a value with a reason,
and a result that is not a bound says so.

:mod:`icltheory.bounds.supersample` bounds any in-context learner with losses in [0, 1],
trained transformers among them: :func:`supersample_losses` evaluates it, and
:func:`supersample_bounds` needs only the losses.

Stability: stable.
"""

from icltheory.bounds.gaussian import (
    anisotropic_term,
    gaussian_kl,
    held_out_term,
    isotropic_term,
)
from icltheory.bounds.information import (
    SmoothingBound,
    bound_from_expectations,
    optimal_prior_variance,
    planned_bound,
    required_samples,
    smoothing_bound,
    trajectory_information,
    xu_raginsky,
)
from icltheory.bounds.records import REASONS, Assumption, Bound
from icltheory.bounds.sampling import (
    ClippedSquaredError,
    sign_error,
    supersample_losses,
)
from icltheory.bounds.steps import GaussianSteps, NoisySteps, noisy_steps
from icltheory.bounds.supersample import (
    SupersampleBound,
    SupersampleBounds,
    prediction_bound,
    supersample_bounds,
)
from icltheory.bounds.theorem import (
    anisotropic_bound,
    held_out_bound,
    isotropic_bound,
    log_inside_bound,
    printed_bound,
)

__all__ = [
    "Assumption",
    "Bound",
    "ClippedSquaredError",
    "GaussianSteps",
    "NoisySteps",
    "REASONS",
    "SmoothingBound",
    "SupersampleBound",
    "SupersampleBounds",
    "anisotropic_bound",
    "anisotropic_term",
    "bound_from_expectations",
    "gaussian_kl",
    "held_out_bound",
    "held_out_term",
    "isotropic_bound",
    "isotropic_term",
    "log_inside_bound",
    "noisy_steps",
    "optimal_prior_variance",
    "planned_bound",
    "prediction_bound",
    "printed_bound",
    "required_samples",
    "sign_error",
    "smoothing_bound",
    "supersample_bounds",
    "supersample_losses",
    "trajectory_information",
    "xu_raginsky",
]
