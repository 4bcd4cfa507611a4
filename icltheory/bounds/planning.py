"""The number of demonstrations that a bound needs to be non-vacuous."""

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._noted import check_positive, check_values
from icltheory._typing import Array, Float

__all__ = ["planned_bound", "required_samples"]


@calculator
def planned_bound(
    num_samples: Real[ArrayLike, "..."],
    shots: Real[ArrayLike, "..."],
    support_dims: Real[ArrayLike, "_L"],
    subgaussian_scale: Real[ArrayLike, ""],
) -> Float[Array, "*batch"]:
    r"""Approximate value of the anisotropic bound for planning; not a proved bound.

    .. math::
        R \sqrt{ \frac1N \sum_{t=1}^L m_t \left[ \log\frac{N}{N - b}
        + \frac{m_t + 1}{2 N} \right] } ,

    the expansion for Gaussian per-demonstration gradients and N well above m_t. Heavier
    tails make the true bound larger, by about a quarter for regression.

    Args:
        num_samples: Number N of demonstrations in the pool.
        shots: Number b of them in the prompt, from 1 and below N.
        support_dims: m_1, ..., m_L.
        subgaussian_scale: R.

    Returns:
        The planned value; inf where N - 1 < m_t for some layer, or b = N.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(planned_bound(1000, 20, jnp.array([5, 5]), 1.0)), 4)
        0.0152

    Source: An expansion of Theorem 2 of Yao et al. (2024) with the best Gaussian prior.
    """
    for name, value in (
        ("num_samples", num_samples),
        ("shots", shots),
        ("support_dims", support_dims),
    ):
        check_positive(name, value)
    check_values("shots", shots, lambda b: b >= 1, "at least 1")
    if not np.size(support_dims):
        raise ValueError("support_dims: expected at least one layer, got none")
    check_positive("subgaussian_scale", subgaussian_scale)
    N, b, m = (
        jnp.asarray(a, jnp.result_type(float))
        for a in (num_samples, shots, support_dims)
    )
    per_dim = -jnp.log1p(-jnp.where(b < N, b / N, 0))  # accurate for b << N
    total = jnp.sum(m) * per_dim + jnp.sum(m * (m + 1)) / (2 * N)
    enough = (jnp.max(m) <= N - 1) & (b < N)
    return jnp.where(enough, subgaussian_scale * jnp.sqrt(total / N), jnp.inf)


@calculator(compiled=False)
def required_samples(
    target: float,
    fraction: float,
    support_dims: Real[ArrayLike, "_L"],
    subgaussian_scale: float,
) -> int:
    r"""The smallest pool for which the planned bound reaches a target.

    Solves :func:`planned_bound` <= target for N at a fixed fraction b/N of shots, and
    at least one shot; to leading order

    .. math::
        N = \left( \frac{R}{\epsilon} \right)^2 \sum_t m_t \log \frac{1}{1 - b/N} .

    Args:
        target: :math:`\epsilon`, in units of the loss.
        fraction: b/N, in (0, 1); b is never below 1.
        support_dims: m_1, ..., m_L.
        subgaussian_scale: R.

    Returns:
        N.

    Example:
        >>> import jax.numpy as jnp
        >>> required_samples(0.1, 0.5, jnp.array([5, 5]), 1.0)
        698

    Source: An expansion of Theorem 2 of Yao et al. (2024) with the best Gaussian prior.
    """
    check_positive("target", target)
    check_positive("support_dims", support_dims)
    check_positive("subgaussian_scale", subgaussian_scale)
    if not 0 < fraction < 1:
        raise ValueError(f"fraction: expected a value in (0, 1), got {fraction}")

    def reached(N):
        # N is a float, since it may exceed 64-bit integers.
        N = float(N)
        shots = max(fraction * N, 1.0)
        planned = planned_bound(N, shots, support_dims, subgaussian_scale)
        return bool(planned <= target)

    high = 2
    while not reached(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
