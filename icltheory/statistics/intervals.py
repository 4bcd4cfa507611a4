"""Confidence intervals: of a proportion, and of any mean by the bootstrap."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.special

from icltheory._checks import (
    as_numbers,
    check_choice,
    check_nonnegative_int,
    check_open_unit,
    check_positive_int,
)
from icltheory._noted import check_finite
from icltheory.statistics.estimates import Interval

__all__ = ["bootstrap_interval", "proportion_interval"]

# Numbers drawn together; all draws of 8000 examples and 10000 resamples need 640 MB.
_CHUNK = 2**22


def proportion_interval(
    successes: Any,
    total: int | np.integer,
    *,
    level: float | int = 0.95,
    method: str = "wilson",
) -> Interval:
    r"""Interval of a proportion with k successes of n, for example an accuracy.

    .. math:: \frac{\hat p + z^2 / 2n \pm z \sqrt{\hat p (1 - \hat p) / n + z^2 / 4n^2}}
        {1 + z^2 / n} \quad \text{(Wilson)}, \qquad
        B^{-1}_{k,\, n - k + 1}(\alpha / 2) ,\;
        B^{-1}_{k + 1,\, n - k}(1 - \alpha / 2) \quad \text{(Clopper-Pearson)}

    with z the normal quantile of :math:`1 - \alpha / 2` and :math:`B^{-1}_{a,b}` a
    quantile of the beta distribution. Clopper-Pearson covers at least at its level,
    Wilson near it on average and with a shorter interval.

    Args:
        successes: The count k, or an array of counts.
        total: How many trials there are, n.
        level: Confidence level :math:`1 - \alpha`.
        method: ``"wilson"`` or ``"clopper_pearson"``.

    Returns:
        The interval, within [0, 1], in the shape of the counts.

    Example:
        >>> interval = proportion_interval(157, 277)
        >>> f"{interval.low:.3f} {interval.high:.3f}"
        '0.508 0.624'

    Source: Wilson (1927); Clopper and Pearson (1934).
    """
    check_choice("method", method, ("wilson", "clopper_pearson"))
    check_open_unit("level", level)
    check_positive_int("total", total)
    counts = np.asarray(successes)
    if not np.issubdtype(counts.dtype, np.integer) or np.any(counts < 0):
        raise ValueError(f"successes: expected integers >= 0, got {successes!r}")
    if np.any(counts > total):
        raise ValueError(f"successes: expected at most {total}, got {counts.max()}")
    counts, total = counts.astype(np.int64), int(total)
    ends = _wilson if method == "wilson" else _clopper_pearson
    low, high = ends(counts, total, (1 - level) / 2)
    low = np.where(counts == 0, 0.0, low)
    high = np.where(counts == total, 1.0, high)
    return Interval(low, high) if counts.ndim else Interval(float(low), float(high))


def _wilson(correct, total, tail):
    z, share = -scipy.special.ndtri(tail), correct / total
    middle = share + z**2 / (2 * total)
    half = z * np.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    return (middle - half) / (1 + z**2 / total), (middle + half) / (1 + z**2 / total)


def _clopper_pearson(correct, total, tail):
    wrong = total - correct
    low = scipy.special.betaincinv(np.maximum(correct, 1), wrong + 1, tail)
    high = scipy.special.betaincinv(correct + 1, np.maximum(wrong, 1), 1 - tail)
    return low, high


def bootstrap_interval(
    values: Any,
    *,
    level: float | int = 0.95,
    draws: int = 10_000,
    method: str = "bca",
    seed: int = 0,
) -> Interval:
    r"""Bootstrap interval of a mean, for example an accuracy or a paired difference.

    .. math:: \bar x^*_{(\alpha_1)}, \bar x^*_{(\alpha_2)} , \qquad
        \alpha_{1, 2} = \Phi\Big( z_0 + \frac{z_0 \pm z_{\alpha / 2}}
        {1 - a (z_0 \pm z_{\alpha / 2})} \Big) , \quad
        a = \frac{\sum_i (x_i - \bar x)^3}{6 (\sum_i (x_i - \bar x)^2)^{3 / 2}}

    for ``"bca"``, with :math:`\Phi(z_0)` the share of draws below the mean and half of
    those equal to it; ``"percentile"`` takes :math:`\alpha / 2` and :math:`1 - \alpha /
    2`. Where there are few different values they are drawn as multinomial counts:
    booleans and differences in {-1, 0, 1} cost O(1) a draw whatever their number.

    The bootstrap knows only what it saw: of equal values the interval is a point. For
    a proportion near 0 or 1 see :func:`proportion_interval`.

    Args:
        values: The numbers x, at least two.
        level: Confidence level :math:`1 - \alpha`.
        draws: How many bootstrap samples.
        method: ``"bca"`` or ``"percentile"``.
        seed: Fixes the samples.

    Returns:
        The interval.

    Example:
        >>> right = [True] * 157 + [False] * 120
        >>> interval = bootstrap_interval(right, draws=2000)
        >>> f"{interval.low:.2f} {interval.high:.2f}"
        '0.51 0.62'

    Source: Efron (1987).
    """
    check_choice("method", method, ("bca", "percentile"))
    check_open_unit("level", level)
    check_positive_int("draws", draws)
    check_nonnegative_int("seed", seed)
    x = as_numbers("values", values)
    if x.ndim != 1 or x.size < 2:
        raise ValueError(f"values: expected at least two in a row, got shape {x.shape}")
    check_finite("values", x)
    means = np.concatenate(list(_resampled_means(x, draws, seed)))
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    if method == "bca":
        tails = _corrected(tails, x, means)
    low, high = np.quantile(means, tails)
    return Interval(float(low), float(high))


def _resampled_means(x: np.ndarray, draws: int, seed: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(seed)
    atoms, counts = np.unique(x, return_counts=True)
    few = 4 * len(atoms) <= x.size
    step = max(1, _CHUNK // (len(atoms) if few else x.size))
    for start in range(0, draws, step):
        size = min(step, draws - start)
        if few:
            yield rng.multinomial(x.size, counts / x.size, size) @ atoms / x.size
        else:
            yield x[rng.integers(x.size, size=(size, x.size))].mean(axis=1)


def _corrected(tails: np.ndarray, x: np.ndarray, means: np.ndarray) -> np.ndarray:
    """BCa tail probabilities; the given ones if all values or draws are equal."""
    # In units of the range, as the cubes of very small or large values are out of it.
    centred = (x - x.mean()) / (np.ptp(x) or 1)
    spread = np.sum(centred**2)
    # Sums in another order may differ in their last bits, so equality has a tolerance.
    near = np.isclose(means, x.mean(), rtol=1e-12, atol=1e-12 * np.abs(x).max())
    below = np.mean((means < x.mean()) & ~near) + np.mean(near) / 2
    if np.ptp(x) == 0 or not 0 < below < 1:
        return tails
    bias = scipy.special.ndtri(below)
    skew = np.sum(centred**3) / (6 * spread**1.5)
    shifted = bias + scipy.special.ndtri(tails)
    return scipy.special.ndtr(bias + shifted / (1 - skew * shifted))
