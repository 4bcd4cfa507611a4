"""Summary of the grid: means over seeds, failures, and the best rate per width."""

import dataclasses

import numpy as np

from experiments.garg_sweep.config import Config
from experiments.garg_sweep.measure import SweepMeasurements
from icltheory.statistics import Estimate

# Error relative to predicting 0, above which a model counts as not having learned.
_NOTHING_LEARNED = 0.9


@dataclasses.dataclass(frozen=True)
class SweepCell:
    """Results of the models that differ only in the seed.

    Attributes:
        noise_var: Their noise.
        width: Their width.
        learning_rate: Their rate.
        errors: Mean error by prefix over the seeds, and its standard error; NaN if a
            seed diverged.
        distance: Mean distance to Bayes over prefixes and seeds, and its error.
        diverged: Step at which each seed diverged, -1 if it did not.
        idle: Seeds that end without having learned anything.
    """

    noise_var: float
    width: int
    learning_rate: float
    errors: tuple[np.ndarray, np.ndarray]
    distance: tuple[float, float]
    diverged: list[int]
    idle: int

    @property
    def sound(self) -> bool:
        """Whether every seed trained to the end and learned."""
        return self.idle == 0 and max(self.diverged) < 0

    @property
    def fate(self) -> str:
        """Describes in words how many seeds diverged or did not learn."""
        steps = sorted(step for step in self.diverged if step >= 0)
        if steps:
            at = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
            return f"{len(steps)}/{len(self.diverged)} diverge at {at}"
        if self.idle:
            return f"{self.idle}/{len(self.diverged)} learn nothing"
        return "learns"


def cells(config: Config, measured: SweepMeasurements) -> list[SweepCell]:
    """Returns all cells of the grid, by noise, then width, then rate."""
    found = []
    for index in np.ndindex(measured.errors.shape[:3]):
        n, w, r = index
        mean, error = Estimate.of(measured.distances[index].mean(axis=-1))
        last = measured.errors[index][:, 2 * config.recipe.dim]
        found.append(
            SweepCell(
                config.noise_vars[n],
                config.widths[w],
                config.learning_rates[r],
                tuple(Estimate.of(measured.errors[index])),
                (float(mean), float(error)),
                measured.diverged_at[index].tolist(),
                int((last > _NOTHING_LEARNED).sum()),
            )
        )
    return found


def best(
    found: list[SweepCell], noise_var: float, width: int | None = None
) -> SweepCell | None:
    """Returns the cell closest to Bayes in which every seed learned, else ``None``."""
    fitting = [
        cell
        for cell in found
        if cell.sound
        and cell.noise_var == noise_var
        and (width is None or cell.width == width)
    ]
    return min(fitting, key=lambda cell: cell.distance[0], default=None)
