"""Figures of the experiments; matplotlib is imported when one is drawn, jax never.

A function takes numbers that are already computed and returns a matplotlib figure.
"""

from icltheory.plotting.bounds import (
    SamplePanel,
    bounds_against_samples,
    bounds_by_learner,
)
from icltheory.plotting.noise import error_sources, noise_against_shots
from icltheory.plotting.pruning import (
    Gain,
    RatePanel,
    condition_numbers_by_layer,
    errors_against_rate,
    gains_of_choices,
)
from icltheory.plotting.regression import (
    Curve,
    error_against_examples,
    errors_by_setting,
    errors_over_training,
)
from icltheory.plotting.style import COLOURS, STYLE
from icltheory.plotting.trajectories import norms_along_depth, ratio_heat_maps

__all__ = [
    "COLOURS",
    "STYLE",
    "Curve",
    "Gain",
    "RatePanel",
    "SamplePanel",
    "bounds_against_samples",
    "bounds_by_learner",
    "condition_numbers_by_layer",
    "error_against_examples",
    "errors_against_rate",
    "error_sources",
    "errors_by_setting",
    "errors_over_training",
    "gains_of_choices",
    "noise_against_shots",
    "norms_along_depth",
    "ratio_heat_maps",
]
