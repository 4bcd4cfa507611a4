"""Means over seeds and draws with their standard errors."""

from typing import Any, NamedTuple

import numpy as np

from experiments.pattern_layers.config import Config
from experiments.pattern_layers.measure import DepthMeasurements


class GivenModels(NamedTuple):
    """A mean over models and draws, with its standard error given the models.

    Attributes:
        mean: The mean.
        error: Its standard error over the draws of the shifted patterns, for these
            models.
        by_seed: The mean of each model.
    """

    mean: float
    error: float
    by_seed: np.ndarray

    def __str__(self) -> str:
        return f"{self.mean:.4f} ({self.error:.4f})"


def estimate(values: Any) -> GivenModels:
    """Estimates the mean of values ``(seeds, draws)``; each model has its own draws."""
    values = np.asarray(values, float)
    seeds, draws = values.shape
    error = np.sqrt(values.var(axis=1, ddof=1).sum() / draws) / seeds
    return GivenModels(float(values.mean()), float(error), values.mean(axis=1))


def at_sum(
    config: Config, found: DepthMeasurements, name: str, value: float
) -> np.ndarray:
    """Returns the means of each draw at one S_1, ``(seeds, draws)``."""
    return getattr(found.outside, name)[:, config.sums.index(value)]


def low_minus_high(config: Config, found: DepthMeasurements, name: str) -> GivenModels:
    """Error at the low S_1 minus error at the high S_1, paired by draw."""
    low, high = (at_sum(config, found, name, s) for s in (config.low, config.high))
    return estimate(low - high)


def growth(found: DepthMeasurements) -> np.ndarray:
    """Ratio of final to initial label norms, averaged over neurons, by layer."""
    norms = found.label_norm.mean(axis=-1)
    return norms[:, -1] / norms[:, 0]


def turned(found: DepthMeasurements) -> np.ndarray:
    """Decrease of the angle to q or -q in units of pi, averaged over neurons."""
    angles = found.label_angle.mean(axis=-1)
    return angles[:, 0] - angles[:, -1]


def jump(found: DepthMeasurements) -> np.ndarray:
    """First recorded step at which attention exceeds 0.7; NaN if it never does.

    By seed and layer.
    """
    above = found.attention > 0.7
    steps = np.asarray(found.steps, float)[np.argmax(above, axis=1)]
    return np.where(above.any(axis=1), steps, np.nan)
