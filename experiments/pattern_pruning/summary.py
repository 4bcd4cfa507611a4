"""Summaries over seeds: intervals, needed parameters, slopes and ranks."""

from typing import NamedTuple

import numpy as np

from experiments.pattern_pruning.bridge import Bridge, Kept
from experiments.pattern_pruning.config import Config
from experiments.pattern_pruning.neurons import NeuronCurves
from icltheory.statistics import Estimate


class SeedMean(NamedTuple):
    """A mean over seeds with the 95 % interval of Student's t.

    Attributes:
        mean: The mean.
        low: Lower end.
        high: Upper end.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def __str__(self) -> str:
        return f"{self.mean:.4f} [{self.low:.4f}, {self.high:.4f}]"


def interval(values) -> SeedMean:
    """Mean and interval over the first axis, which needs at least two entries."""
    found = Estimate.of(np.asarray(values))
    return SeedMean(found.mean, *found.interval())


def least_kept(config: Config, bridge: Bridge, curve: Kept, test: int) -> np.ndarray:
    """Fewest parameters beyond which the hinge error stays within the tolerance.

    Args:
        config: The sizes, with the tolerance.
        bridge: The comparison, with the unpruned errors.
        curve: One module and method.
        test: 0 in domain, 1 out of domain.

    Returns:
        The count for each seed; all parameters where none of the ranks is enough.
    """
    limit = bridge.hinge[:, test, None] + config.tolerance
    bad = curve.hinge[:, :, test] > limit
    counts = np.append(curve.parameters, curve.total)
    # Index after the last error above the limit; 0 if there is none.
    first = np.where(bad.any(1), bad.shape[1] - np.argmax(bad[:, ::-1], axis=1), 0)
    return counts[first]


def slope_ratio(config: Config, found: NeuronCurves, test: int) -> np.ndarray:
    r"""Ratio of the hinge error's slope in R to its expected value, by seed.

    .. math:: \frac{d}{dR} [1 - F (1 - g)]_+ = \frac{F m}{m - m_{small}}

    once the small neurons and the slack F - 1 are gone, up to R = 1.
    """
    rates, curve = np.asarray(config.rates), found.curves["magnitude"]
    m, ratios = found.sizes.shape[1], []
    for seed, (small, F) in enumerate(
        zip(found.small, found.margin[:, test], strict=True)
    ):
        rising = curve.counted[seed, :, test] > 0.1
        if rising.sum() < 2:
            ratios.append(np.nan)
            continue
        hinge = curve.hinge[seed, rising, test]
        ratios.append(np.polyfit(rates[rising], hinge, 1)[0] / (F * m / (m - small)))
    return np.array(ratios)


def ranks_left(bridge: Bridge) -> dict[str, list[int]]:
    """Number of singular values above a tenth of the largest, by product and seed."""
    return {
        name: (s > 0.1 * s[:, :1]).sum(1).tolist() for name, s in bridge.spectra.items()
    }
