"""Singular values of random matrices, as a reference for weight matrices."""

import math

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from icltheory._checks import positive
from icltheory._core import calculator
from icltheory._typing import Array, Float


@calculator(static=("shape",), std=positive)
def marchenko_pastur_density(
    s: Float[ArrayLike, "*points"],
    shape: tuple[int, int],
    std: Float[ArrayLike, ""] = 1.0,
) -> Float[Array, "*points"]:
    r"""Density of the singular values of a large matrix with independent entries.

    .. math:: f(s) = \frac{\sqrt{(s^2 - a^2)(b^2 - s^2)}}{\pi \sigma^2 k s},
        \qquad a, b = \sigma (\sqrt{\max(m, n)} \mp \sqrt k), \quad k = \min(m, n)

    between a and b, and 0 elsewhere: the limit of Marchenko and Pastur as m and n grow
    in proportion, for entries of mean 0 and standard deviation :math:`\sigma`. It
    integrates to 1, and is NaN where s is NaN. A value of a trained matrix above b is
    no effect of chance.

    Example:
        >>> import numpy as np
        >>> marchenko_pastur_density(np.array([1.0, 3.0]), (4, 1)).round(3).tolist()
        [0.0, 0.0]
        >>> float(marchenko_pastur_density(1.0, (1, 1)).round(4))  # a quarter circle
        0.5513

    Source: Marchenko and Pastur (1967).
    """
    whole = all(isinstance(size, int | np.integer) and size >= 1 for size in shape)
    if len(shape) != 2 or not whole:
        raise ValueError(f"shape: expected two positive integers, got {shape}")
    k, long, short = min(shape), math.sqrt(max(shape)), math.sqrt(min(shape))
    low, high = std * (long - short), std * (long + short)
    s = jnp.asarray(s, float)
    # For a square matrix low is 0, where the density is positive.
    inside = (s >= low) & (s < high)
    below = 1 - (low / jnp.where(inside, s, 1.0)) ** 2 if long > short else 1.0
    outside = jnp.where(jnp.isnan(s), jnp.nan, 0.0)
    product = jnp.where(inside, below * (high**2 - s**2), outside)
    return jnp.sqrt(product) / (math.pi * std**2 * k)
