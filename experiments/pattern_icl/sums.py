"""Errors against the coefficient sum S_1, with the closed form."""

import dataclasses

import numpy as np

from experiments._patterns import Means, TrainedEnsemble, over_seeds, scores_at_sums
from experiments.pattern_icl.config import Config
from icltheory.patterns import gain_ratio, hinge, margin


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Errors of one ensemble of models against S_1.

    Attributes:
        sums: The values of S_1.
        found: What was measured, (seeds, sums, draws).
        ratio: Ratio c of each seed, from its weights.
        margins: Closed-form margin F(S_1), (seeds, sums).
    """

    sums: np.ndarray
    found: Means
    ratio: np.ndarray
    margins: np.ndarray

    @property
    def hinge(self) -> np.ndarray:
        """Closed-form hinge error [1 - F]_+, (seeds, sums)."""
        return np.asarray(hinge(self.margins))

    @property
    def hinge_gap(self) -> np.ndarray:
        """Mean measured hinge error over the draws minus the closed form."""
        return np.asarray(self.found.hinge).mean(axis=-1) - self.hinge


def sweep(config: Config, trained: TrainedEnsemble) -> Sweep:
    """Measures all S_1, draws and seeds, and computes the closed-form margins."""
    found = scores_at_sums(
        trained,
        config.sums,
        config.draws,
        config.prompts,
        num_examples=trained.ensemble.num_examples,
    )
    seen = over_seeds(lambda task, params: gain_ratio(params, task), trained)
    sums = np.asarray(config.sums)
    gain = np.asarray(seen.gain)[:, None] * np.asarray(found.attention).mean(axis=-1)
    ratio = np.asarray(seen.ratio)
    margins = np.asarray(margin(sums[None], gain, ratio[:, None]))
    return Sweep(sums, found, ratio, margins)
