"""Confidence intervals for the mean error of each prefix."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax.typing import ArrayLike

from icltheory._checks import check_positive_int
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, PRNGKey

__all__ = ["Interval", "bootstrap_interval", "student_interval"]

_RESAMPLES_AT_A_TIME = 64


@pytree
class Interval:
    r"""Limits of a confidence interval.

    .. math:: [\text{low}, \text{high}].

    Args:
        low: Lower limits.
        high: Upper limits.

    Returns:
        A frozen pytree.

    Example:
        >>> student_interval(jnp.array([[1.0], [1.0]])).low.tolist()
        [1.0]

    References:
        Garg, Tsipras, Liang and Valiant, "What Can Transformers Learn In-Context?"
        (2022), Appendix A. Verified by ``tests/regression/test_monte_carlo.py``.
    """

    low: Float[Array, " P"]
    high: Float[Array, " P"]


def bootstrap_interval(
    errors: Float[ArrayLike, "S P"],
    key: PRNGKey,
    resamples: int = 1000,
    *,
    level: float = 0.9,
) -> Interval:
    r"""Percentile bootstrap interval of the mean over prompts.

    .. math:: \bar e^{*}_r = \frac1S \sum_s n_{r,s}\, e_s, \qquad
        (n_{r,1}, \dots, n_{r,S}) \sim \mathrm{Multinomial}(S, 1/S),

    and the limits are the order statistics number floor(R (1 - level) / 2) and
    floor(R (1 + level) / 2), from 0, of the R resampled means: 50 and 950 of Garg's
    1,000. Whole prompts are resampled, so prefixes keep their dependence. Each resample
    is one product of counts with the errors, O(R S P), on the device of the errors.

    Args:
        errors: Error of each of S prompts at each of P prefixes.
        key: Typed key.
        resamples: Resamples R.
        level: Probability between the limits; 0.9 for the 5 % and 95 % limits.

    Returns:
        The limits.

    Raises:
        ValueError: If ``resamples`` is not positive or ``level`` not within (0, 1).

    Example:
        >>> errors = jax.random.normal(jax.random.key(0), (400, 1))
        >>> interval = bootstrap_interval(errors, jax.random.key(1))
        >>> bool(0.12 < (interval.high - interval.low)[0] < 0.2)
        True

    References:
        Garg, Tsipras, Liang and Valiant, "What Can Transformers Learn In-Context?"
        (2022), Appendix A. Verified by ``tests/regression/test_monte_carlo.py``.
    """
    check_positive_int("resamples", resamples)
    _check_level(level)
    errors = jnp.asarray(errors)
    count = errors.shape[0]

    def resample(k):
        index = jax.random.randint(k, (count,), 0, count)
        weights = jnp.zeros(count, errors.dtype).at[index].add(1 / count)
        return jnp.einsum("s,sp->p", weights, errors, precision="highest")

    keys = jax.random.split(key, resamples)
    means = jax.lax.map(resample, keys, batch_size=_RESAMPLES_AT_A_TIME)
    means = jnp.sort(means, axis=0)
    # Garg's int(0.05 * R) and int(0.95 * R), without their rounding accidents.
    low, high = (int(round(resamples * (1 + s * level), 6) / 2) for s in (-1, 1))
    return Interval(means[low], means[min(high, resamples - 1)])


def student_interval(
    errors: Float[ArrayLike, "S P"], *, level: float = 0.9
) -> Interval:
    r"""Student's t interval of the mean over prompts.

    .. math:: \bar e \pm t_{S-1, (1 + level)/2}\, \mathrm{se}(\bar e).

    Args:
        errors: Error of each of S >= 2 prompts at each of P prefixes.
        level: Probability between the limits.

    Returns:
        The limits.

    Raises:
        ValueError: If there are fewer than two prompts or ``level`` is not within
            (0, 1).

    Example:
        >>> interval = student_interval(jnp.array([[1.0], [3.0]]), level=0.5)
        >>> interval.low.round(6).tolist(), interval.high.round(6).tolist()
        ([1.0], [3.0])

    References:
        Student, "The probable error of a mean" (1908).
        Verified by ``tests/regression/test_monte_carlo.py``.
    """
    _check_level(level)
    errors = jnp.asarray(errors)
    count = errors.shape[0]
    if count < 2:
        raise ValueError(f"errors: expected at least two prompts, got {count}")
    quantile = float(scipy.special.stdtrit(count - 1, (1 + level) / 2))
    mean = jnp.mean(errors, axis=0)
    half = quantile * jnp.std(errors, axis=0, ddof=1) / np.sqrt(count)
    return Interval(mean - half, mean + half)


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level: expected a value within (0, 1), got {level}")
