"""Bootstrap of Garg et al. for curves of the error against the number of examples."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._arguments import real_numbers
from icltheory._checks import (
    check_key,
    check_open_unit,
    check_positive_int,
    check_shape,
)
from icltheory._precision import widened
from icltheory._typing import Float, PRNGKey
from icltheory.statistics.estimates import Interval

__all__ = ["curve_interval"]

_RESAMPLES_AT_A_TIME = 64


def curve_interval(
    errors: Float[ArrayLike, "S P"],
    key: PRNGKey,
    resamples: int = 1000,
    *,
    level: float = 0.9,
) -> Interval:
    r"""Percentile bootstrap interval of a mean curve over prompts, on the device.

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

    Example:
        >>> errors = jax.random.normal(jax.random.key(0), (400, 1))
        >>> interval = curve_interval(errors, jax.random.key(1))
        >>> bool(0.12 < (interval.high - interval.low)[0] < 0.2)
        True

    Source: Garg et al. (2022), Appendix A.
    """
    check_key("key", key)
    check_positive_int("resamples", resamples)
    check_open_unit("level", level)
    errors = widened(real_numbers("errors", errors))
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
    # These are Garg's int(0.05 * R) and int(0.95 * R), without their rounding errors.
    low, high = (int(round(resamples * (1 + s * level), 6) / 2) for s in (-1, 1))
    return Interval(means[low], means[min(high, resamples - 1)])
