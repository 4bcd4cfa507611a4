r"""Balanced features in infinite contexts: gradient flow in closed form.

From Q = 0 all features do the same, :math:`A + (K - 1) B = 0` throughout, and with
:math:`u = 1 - \mathrm{Attn}_k` and :math:`s = K / (K - 1)`

.. math::
    \frac{du}{dt} = - \frac{\eta s^2}{K} u^3 (1 - u)^2 , \qquad L = \tfrac12 s u^2 .
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_integer
from icltheory._noted import check_positive, check_unit, check_values
from icltheory._typing import Array, Float
from icltheory.regression._linalg import Number

__all__ = ["balanced_attention", "balanced_loss", "balanced_time", "loss_asymptote"]


@calculator
def balanced_time(
    attention: Float[ArrayLike, "..."], num_features: int, step_size: Number
) -> Float[Array, "..."]:
    r"""Time in steps at which attention on the query's feature reaches a value.

    .. math::
        t(u) = \frac{K}{\eta s^2} \big[ G(1 - 1/K) - G(u) \big] , \qquad
        G(u) = -\frac{1}{2 u^2} - \frac{2}{u} + 3 \ln u + \frac{1}{1 - u}
               - 3 \ln (1 - u) .

    Args:
        attention: 1 - u, from 1 / K on and below 1.
        num_features: K >= 2.
        step_size: eta.

    Returns:
        Times; zero at 1 / K, infinite at 1.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(balanced_time(jnp.array(0.5), 5, 0.5)), 1)
        63.2

    Source: Huang et al. (2024), the two phases of balanced features, here in closed
    form.
    """
    check_integer("num_features", num_features, 2)
    check_positive("step_size", step_size)
    attention = jnp.asarray(attention)
    least = (1 - 1e-6) / num_features
    check_values(
        "attention", attention, lambda a: (a >= least) & (a <= 1), "values in [1/K, 1]"
    )
    return _time(1 - attention, num_features, step_size)


@calculator
def balanced_attention(
    steps: Real[ArrayLike, "..."], num_features: int, step_size: Number
) -> Float[Array, "..."]:
    r"""Attention on the query's feature at given times (inverse of ``balanced_time``).

    By bisection, to the precision of the dtype. First derivatives are exact.

    Args:
        steps: Times t >= 0 in steps.
        num_features: K >= 2.
        step_size: eta.

    Returns:
        Attention 1 - u(t).

    Example:
        >>> import jax.numpy as jnp
        >>> balanced_attention(jnp.array([0.0, 63.2, 1e5]), 5, 0.5).round(3).tolist()
        [0.2, 0.5, 0.994]

    Source: Huang et al. (2024).
    """
    check_integer("num_features", num_features, 2)
    check_positive("step_size", step_size)
    check_values("steps", steps, lambda t: t >= 0, "numbers >= 0")
    t = jnp.asarray(steps, jnp.result_type(float, step_size))
    u = jax.lax.stop_gradient(_bisected(t, num_features, step_size))
    # Bisection has no derivative, so a Newton step of size 0 provides it.
    s = num_features / (num_features - 1)
    speed = step_size * s**2 / num_features * u**3 * (1 - u) ** 2
    late = _time(u, num_features, step_size) - t
    late = jnp.where(jnp.isfinite(late), late, 0)
    return 1 - u - jax.lax.stop_gradient(speed) * (late - jax.lax.stop_gradient(late))


def _bisected(t: Array, num_features: int, step_size: Number) -> Array:
    """Solves for u at a time by bisection, to the precision of the dtype."""
    largest = jnp.full(t.shape, 1 - 1 / num_features, t.dtype)

    def halve(_, ends):
        low, high = ends
        middle = jnp.sqrt(low * high)
        later = _time(middle, num_features, step_size) > t
        return jnp.where(later, middle, low), jnp.where(later, high, middle)

    # u decays as a power of t, so bisection of its logarithm is accurate everywhere.
    smallest = jnp.full(t.shape, jnp.sqrt(jnp.finfo(t.dtype).tiny), t.dtype)
    low, high = jax.lax.fori_loop(0, 80, halve, (smallest, largest))
    return jnp.sqrt(low * high)


@calculator
def balanced_loss(
    attention: Float[ArrayLike, "..."], num_features: int
) -> Float[Array, "..."]:
    r"""The loss of balanced features, :math:`L = \tfrac12 s u^2`.

    Args:
        attention: 1 - u, the attention on the query's feature.
        num_features: K >= 2.

    Returns:
        Losses.

    Example:
        >>> import jax.numpy as jnp
        >>> float(balanced_loss(jnp.array(0.5), 2))
        0.25

    Source: Huang et al. (2024).
    """
    check_integer("num_features", num_features, 2)
    check_unit("attention", attention)
    s = num_features / (num_features - 1)
    return s * (1 - jnp.asarray(attention)) ** 2 / 2


@calculator
def loss_asymptote(num_features: int, step_size: Number) -> Float[Array, ""]:
    r"""The limit of L t in the second phase, :math:`(K - 1) / (4 \eta)`.

    It is reached slowly, from above: at a loss of 1e-3 the product is still larger by
    20 % for K = 5 and by 30 % for K = 20.

    Args:
        num_features: K >= 2.
        step_size: eta.

    Returns:
        The limit.

    Example:
        >>> float(loss_asymptote(5, 0.5))
        2.0

    Source: Huang et al. (2024), the second phase.
    """
    check_integer("num_features", num_features, 2)
    check_positive("step_size", step_size)
    return (num_features - 1) / (4 * jnp.asarray(step_size, float))


def _time(u: Any, K: int, eta: Any) -> Array:
    s = K / (K - 1)
    return K / (eta * s**2) * (_G(jnp.asarray(1 - 1 / K, u.dtype)) - _G(u))


def _G(u: Array) -> Array:
    poles = -1 / (2 * u**2) - 2 / u + 1 / (1 - u)
    return poles + 3 * jnp.log(u) - 3 * jnp.log1p(-u)
