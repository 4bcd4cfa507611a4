"""Final excess risk of each setting, and its ratio to the baseline's."""

import dataclasses
import math
from typing import Any

import numpy as np

from experiments.garg_recipe.config import Config
from experiments.garg_recipe.train import TrainedWithChange
from icltheory.statistics import Estimate

Pair = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class ChangeSummary:
    """Final results of one setting: mean over seeds with standard error.

    Attributes:
        name: Its name.
        steps: Steps it took.
        batch_size: Prompts a step.
        low: Squared error / d at k = d.
        high: At k = 2d.
        excess: Mean squared distance to the posterior mean / d over prefixes.
        ratio: Geometric mean over seeds of the excess over the baseline's of the same
            seed, and the standard error of its logarithm.
        ms: Milliseconds a step and model, compilation left out.
        compile_seconds: Of all its programs.
    """

    name: str
    steps: int
    batch_size: int
    low: Pair
    high: Pair
    excess: Pair
    ratio: Pair
    ms: float
    compile_seconds: float

    @property
    def interval(self) -> Pair:
        """Interval of two standard errors of the ratio's logarithm."""
        mean, error = self.ratio
        return mean * math.exp(-2 * error), mean * math.exp(2 * error)

    def as_dict(self) -> dict[str, Any]:
        """The summary as a dictionary for JSON; diverged numbers become ``None``."""
        return {
            name: [x if math.isfinite(x) else None for x in value]
            if isinstance(value, tuple)
            else value
            for name, value in dataclasses.asdict(self).items()
        }


def rows(config: Config, trained: dict[str, TrainedWithChange]) -> list[ChangeSummary]:
    """Returns the settings in order of training, the baseline first."""
    base, found = trained["baseline"].excess[-1], []
    for name, setting in config.settings().items():
        own = trained[name]
        logs = _mean(np.log(own.excess[-1] / base))
        seeds, timing = len(config.seeds), own.timing
        found.append(
            ChangeSummary(
                name,
                setting.steps,
                setting.batch_size,
                _mean(own.errors[-1, :, config.dim]),
                _mean(own.errors[-1, :, 2 * config.dim]),
                _mean(own.excess[-1]),
                (math.exp(logs[0]), logs[1]),
                1e3 * timing.train_seconds / max(timing.steps, 1) / seeds,
                timing.compile_seconds,
            )
        )
    return found


def _mean(values: np.ndarray) -> Pair:
    mean, error = Estimate.of(values)
    return float(mean), float(error)
