"""Confidence intervals: of proportions, of paired differences, and of curves."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax.typing import ArrayLike

from icltheory._checks import (
    check_choice,
    check_key,
    check_positive_int,
    check_shape,
    open_unit,
    real,
)
from icltheory._core import widened
from icltheory._typing import Float, PRNGKey
from icltheory.statistics.estimates import Interval

_RESAMPLES_AT_A_TIME = 64
# After this many bisections of [-1, 1] the interval is narrower than 2e-12.
_HALVINGS = 40


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

    with z the normal quantile of :math:`1 - \alpha / 2` and :math:`B^{-1}_{a,b}` a beta
    quantile. ``"clopper_pearson"`` covers at least at its level, ``"wilson"`` near it
    on average and with a shorter interval. ``successes`` may be an array.

    Example:
        >>> interval = proportion_interval(157, 277)
        >>> f"{interval.low:.3f} {interval.high:.3f}"
        '0.508 0.624'

    Source: Wilson (1927); Clopper and Pearson (1934).
    """
    check_choice("method", method, ("wilson", "clopper_pearson"))
    open_unit("level", level)
    check_positive_int("total", total)
    counts, total = _counts("successes", successes), int(total)
    if np.any(counts > total):
        raise ValueError(f"successes: expected at most {total}, got {counts.max()}")
    ends = _wilson if method == "wilson" else _clopper_pearson
    low, high = ends(counts, total, (1 - level) / 2)
    low = np.where(counts == 0, 0.0, low)
    high = np.where(counts == total, 1.0, high)
    return Interval(low, high) if counts.ndim else Interval(float(low), float(high))


def _counts(name: str, values: Any) -> np.ndarray:
    counts = np.asarray(values)
    if not np.issubdtype(counts.dtype, np.integer) or np.any(counts < 0):
        raise ValueError(f"{name}: expected integers >= 0, got {values!r}")
    return counts.astype(np.int64)


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


def paired_interval(
    gained: Any, lost: Any, total: int | np.integer, *, level: float | int = 0.95
) -> Interval:
    r"""Score interval of the difference of two accuracies on the same examples.

    .. math:: \Big\{ \delta : \frac{|g - l - n \delta|}
        {\sqrt{n\, (2 \tilde q + \delta (1 - \delta))}} \le z \Big\} , \qquad
        \tilde q = \frac{\sqrt{B^2 + 8 n l \delta (1 - \delta)} - B}{4 n} , \quad
        B = (2 n - g + l)\, \delta - g - l ,

    with g examples that only the second has right and l that only the first has, of n
    (counts, or arrays of counts), z the normal quantile of :math:`1 - \alpha / 2` and
    :math:`\tilde q` the most likely share of lost examples if the true difference is
    :math:`\delta`. The ends are found by halving.

    The interval excludes 0 exactly where :func:`score_mcnemar` rejects. It covers near
    its level if more than three examples are expected to change, and more often below
    that.

    Example:
        >>> interval = paired_interval(16, 6, 161)
        >>> f"{interval.low:.4f} {interval.high:.4f}"
        '0.0054 0.1240'

    Source: Tango (1998); the example is that of Cavo et al. (2012) in Fagerland,
    Lydersen and Laake (2014).
    """
    open_unit("level", level)
    check_positive_int("total", total)
    total = int(total)
    g, l = np.broadcast_arrays(_counts("gained", gained), _counts("lost", lost))
    if np.any(g + l > total):
        most = int(np.max(g + l))
        raise ValueError(f"gained, lost: expected a sum of at most {total}, got {most}")
    z = -float(scipy.special.ndtri((1 - level) / 2))
    low, high = _lower_end(g, l, total, z), -_lower_end(l, g, total, z)
    return Interval(low, high) if g.ndim else Interval(float(low), float(high))


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


def curve_interval(
    errors: Float[ArrayLike, "S P"],
    *,
    key: PRNGKey,
    resamples: int = 1000,
    level: float = 0.95,
) -> Interval:
    r"""Percentile bootstrap interval of a mean curve over prompts, on the device.

    .. math:: \bar e^{*}_r = \frac1S \sum_s n_{r,s}\, e_s, \qquad
        (n_{r,1}, \dots, n_{r,S}) \sim \mathrm{Multinomial}(S, 1/S),

    for the errors of S prompts at P prefixes. The limits are the order statistics
    floor(R (1 - level) / 2) and floor(R (1 + level) / 2), from 0, of the R resampled
    means. Whole prompts are resampled, so that prefixes keep their dependence.

    Example:
        >>> errors = jax.random.normal(jax.random.key(0), (400, 1))
        >>> interval = curve_interval(errors, key=jax.random.key(1))
        >>> bool(0.12 < (interval.high - interval.low)[0] < 0.2)
        True

    Source: Garg et al. (2022), Appendix A.
    """
    check_key("key", key)
    check_positive_int("resamples", resamples)
    open_unit("level", level)
    errors = widened(real("errors", errors))
    check_shape("errors", errors, ("S", "P"))
    count = errors.shape[0]
    if count < 2:
        raise ValueError(f"errors: expected two rows or more, got {count}")

    # Sums of deviations, since those of the errors round equal ones to others.
    first, deviations = errors[:1], errors - errors[:1]

    def resample(k):
        index = jax.random.randint(k, (count,), 0, count)
        weights = jnp.zeros(count, errors.dtype).at[index].add(1 / count)
        return jnp.einsum("s,sp->p", weights, deviations, precision="highest")

    keys = jax.random.split(key, resamples)
    means = jax.lax.map(resample, keys, batch_size=_RESAMPLES_AT_A_TIME)
    means = first + jnp.sort(means, axis=0)
    # At level 0.9 these are Garg's int(0.05 * R) and int(0.95 * R).
    low, high = (int(round(resamples * (1 + s * level), 6) / 2) for s in (-1, 1))
    return Interval(means[low], means[min(high, resamples - 1)])
