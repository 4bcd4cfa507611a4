"""Score interval of the difference of two proportions on the same examples."""

from typing import Any

import numpy as np
import scipy.special

from icltheory._checks import check_open_unit, check_positive_int
from icltheory.statistics.estimates import Interval

__all__ = ["paired_interval"]

# After this many bisections of [-1, 1] the interval is narrower than 2e-12.
_HALVINGS = 40


def paired_interval(
    gained: Any,
    lost: Any,
    total: int | np.integer,
    *,
    level: float | int = 0.95,
) -> Interval:
    r"""Score interval of the difference of two accuracies on the same examples.

    .. math:: \Big\{ \delta : \frac{|g - l - n \delta|}
        {\sqrt{n\, (2 \tilde q + \delta (1 - \delta))}} \le z \Big\} , \qquad
        \tilde q = \frac{\sqrt{B^2 + 8 n l \delta (1 - \delta)} - B}{4 n} , \quad
        B = (2 n - g + l)\, \delta - g - l ,

    with g examples gained and l lost of n, and z the normal quantile of
    :math:`1 - \alpha / 2`. :math:`\tilde q` is the most likely share of lost examples
    if the true difference is :math:`\delta`: the variance is that of the hypothesis
    and not of the data. The fraction falls in :math:`\delta`, so its two ends are found
    by halving, for every possible count. Where nothing changed they are
    :math:`\pm z^2 / (n + z^2)`, where everything was gained :math:`(n - z^2) / (n +
    z^2)` and 1.

    The interval excludes 0 exactly where the test of :func:`score_mcnemar` rejects. It
    covers the true difference near its level if more than three discordant examples
    are expected, and more often below that; ``tests/statistics/test_paired.py`` has the
    numbers. Intervals that take the number of discordant examples as known, or a
    bootstrap of a few of them, cover less.

    Args:
        gained: How many examples only the second has right, g; or an array of counts.
        lost: How many only the first has right, l; likewise.
        total: How many examples there are, n.
        level: Confidence level :math:`1 - \alpha`.

    Returns:
        The interval of :math:`\delta`, in the shape of the counts.

    Example:
        >>> interval = paired_interval(16, 6, 161)
        >>> f"{interval.low:.4f} {interval.high:.4f}"
        '0.0054 0.1240'

    Source: Tango (1998); the example is that of Cavo et al. (2012) in Fagerland,
    Lydersen and Laake (2014).
    """
    check_open_unit("level", level)
    check_positive_int("total", total)
    total = int(total)
    g, l = np.broadcast_arrays(_counts("gained", gained), _counts("lost", lost))
    if np.any(g + l > total):
        most = int(np.max(g + l))
        raise ValueError(f"gained, lost: expected a sum of at most {total}, got {most}")
    z = -float(scipy.special.ndtri((1 - level) / 2))
    shape, g, l = g.shape, g.ravel(), l.ravel()
    low, high = _lower_end(g, l, total, z), -_lower_end(l, g, total, z)
    if not shape:
        return Interval(float(low[0]), float(high[0]))
    return Interval(low.reshape(shape), high.reshape(shape))


def _counts(name: str, values: Any) -> np.ndarray:
    counts = np.asarray(values)
    if not np.issubdtype(counts.dtype, np.integer) or np.any(counts < 0):
        raise ValueError(f"{name}: expected integers >= 0, got {values!r}")
    return counts.astype(np.int64)


def _lower_end(gained, lost, total, z):
    """Smallest difference that the score test does not reject."""
    low, high = np.full(gained.shape, -1.0), (gained - lost) / total
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            # At the observed difference, 0 / 0 may be NaN, which counts as not
            # rejected.
            rejected = _score(gained, lost, total, middle) > z
            low = np.where(rejected, middle, low)
            high = np.where(rejected, high, middle)
    return high


def _score(gained, lost, total, delta):
    """Standardised distance of the observed difference from ``delta``."""
    half = ((2 * total - gained + lost) * delta - gained - lost) / (2 * total)
    slack = delta * (1 - delta)
    inside = np.maximum(half**2 + 2 * lost / total * slack, 0)
    least_lost = (np.sqrt(inside) - half) / 2
    variance = np.maximum(2 * least_lost + slack, 0)
    return ((gained - lost) / total - delta) / np.sqrt(variance / total)
