"""Generalisation bounds of in-context learning by mutual information.

The calculators of :mod:`~icltheory.bounds.information` take plain numbers and matrices,
from any learner. :func:`theorem2` puts them together for a stack of linear attention,
as printed and as provable: every choice that the printed form leaves open has a name,
infinity is a value with a reason, and what is no bound says so.
"""

from icltheory.bounds.gaussian import (
    anisotropic_term,
    gaussian_kl,
    held_out_term,
    isotropic_term,
)
from icltheory.bounds.information import (
    lemma6,
    optimal_prior_variance,
    trajectory_information,
    xu_raginsky,
)
from icltheory.bounds.planning import planned_bound, required_samples
from icltheory.bounds.records import REASONS, Bound
from icltheory.bounds.shrinkage import ledoit_wolf_intensity
from icltheory.bounds.smoothing import SmoothingBound, smoothing_bound
from icltheory.bounds.theorem2 import AS_PRINTED, theorem2

__all__ = [
    "AS_PRINTED",
    "REASONS",
    "Bound",
    "SmoothingBound",
    "anisotropic_term",
    "gaussian_kl",
    "held_out_term",
    "isotropic_term",
    "ledoit_wolf_intensity",
    "lemma6",
    "optimal_prior_variance",
    "planned_bound",
    "required_samples",
    "smoothing_bound",
    "theorem2",
    "trajectory_information",
    "xu_raginsky",
]
