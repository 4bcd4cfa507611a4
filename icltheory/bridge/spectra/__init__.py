"""Singular values of a language model's matrices: condition numbers, cache, methods.

Condition numbers are computed in float64 on the host and stand beside what a random
matrix of the shape has and beside what the rounding of the weights leaves visible.
"""

from icltheory.bridge.spectra.activations import ActivationAware, input_moments
from icltheory.bridge.spectra.baselines import LargestEntries, RandomVectors
from icltheory.bridge.spectra.conditions import ConditionNumber, condition_numbers
from icltheory.bridge.spectra.cumulative import Cumulative
from icltheory.bridge.spectra.methods import (
    Exact,
    Randomised,
    SingularSystem,
    randomised_svd,
)
from icltheory.bridge.spectra.rounding import rounding_noise, stored_dtype
from icltheory.bridge.spectra.systems import SingularSystems

__all__ = [
    "ActivationAware",
    "ConditionNumber",
    "Cumulative",
    "Exact",
    "LargestEntries",
    "RandomVectors",
    "Randomised",
    "SingularSystem",
    "SingularSystems",
    "condition_numbers",
    "input_moments",
    "randomised_svd",
    "rounding_noise",
    "stored_dtype",
]
