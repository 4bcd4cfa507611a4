r"""Equally likely features in infinite contexts: gradient flow in closed form.

From Q = 0 all K features do the same, :math:`A + (K - 1) B = 0` throughout, and with
:math:`u = 1 - \mathrm{Attn}_k` and :math:`s = K / (K - 1)` the risk is :math:`L = s
u^2`. Gradient steps are those of ``features.feature_descent``.
"""

from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import Check, check_integer, positive, unit
from icltheory._core import calculator
from icltheory._typing import Array, Float, Scalar

__all__ = ["balanced_attention", "balanced_loss", "balanced_time", "loss_asymptote"]


def _reached(name: str, attention: Any, given: Any) -> Any:
    check_integer("num_features", given["num_features"], 2)
    least = (1 - 1e-6) / given["num_features"]
    possible = Check(lambda a: (a >= least) & (a <= 1), "values in [1/K, 1]")
    return possible(name, attention)


@calculator(static=("num_features",), step_size=positive, attention=_reached)
def balanced_time(
    attention: Any, num_features: int, step_size: Any
) -> Float[Array, "..."]:
    r"""Steps until attention on the query's feature reaches a value, balanced features.

    .. math::
        \frac{du}{dt} = - \frac{2 \eta s^2}{K} u^3 (1 - u)^2 , \qquad
        t(u) = \frac{K}{2 \eta s^2} \big[ G(1 - 1/K) - G(u) \big] , \qquad
        G(u) = -\frac{1}{2 u^2} - \frac{2}{u} + 3 \ln u + \frac{1}{1 - u}
               - 3 \ln (1 - u) .

    It is 0 at attention 1 / K and infinite at 1.

    Example:
        >>> round(float(balanced_time(jnp.array(0.5), 5, 0.25)), 1)
        63.2

    Source: Huang et al. (2024), the two phases of balanced features.
    """
    return _time(1 - jnp.asarray(attention), num_features, step_size)


_elapsed = Check(lambda t: t >= 0, "numbers >= 0")


@calculator(static=("num_features",), step_size=positive, steps=_elapsed)
def balanced_attention(
    steps: Any, num_features: int, step_size: Any
) -> Float[Array, "..."]:
    r"""Attention on the query's feature at given times (inverse of ``balanced_time``).

    By bisection; first derivatives are exact.

    Example:
        >>> balanced_attention(jnp.array([0.0, 63.2, 1e5]), 5, 0.25).round(3).tolist()
        [0.2, 0.5, 0.994]

    Source: Huang et al. (2024).
    """
    check_integer("num_features", num_features, 2)
    t = jnp.asarray(steps, jnp.result_type(float, step_size))

    def halve(_, ends):
        low, high = ends
        middle = jnp.sqrt(low * high)
        later = _time(middle, num_features, step_size) > t
        return jnp.where(later, middle, low), jnp.where(later, high, middle)

    # u decays as a power of t, so bisection of its logarithm is accurate everywhere.
    smallest = jnp.full(t.shape, jnp.sqrt(jnp.finfo(t.dtype).tiny), t.dtype)
    ends = smallest, jnp.full(t.shape, 1 - 1 / num_features, t.dtype)
    low, high = jax.lax.fori_loop(0, 80, halve, ends)
    u = jax.lax.stop_gradient(jnp.sqrt(low * high))
    # Bisection has no derivative, so a Newton step of size 0 provides it.
    s = num_features / (num_features - 1)
    speed = 2 * step_size * s**2 / num_features * u**3 * (1 - u) ** 2
    late = _time(u, num_features, step_size) - t
    late = jnp.where(jnp.isfinite(late), late, 0)
    return 1 - u - jax.lax.stop_gradient(speed) * (late - jax.lax.stop_gradient(late))


@calculator(static=("num_features",), attention=unit)
def balanced_loss(attention: Any, num_features: int) -> Float[Array, "..."]:
    r"""The risk of balanced features at an attention 1 - u, :math:`L = s u^2`.

    Example:
        >>> float(balanced_loss(jnp.array(0.5), 2))
        0.5

    Source: Huang et al. (2024).
    """
    check_integer("num_features", num_features, 2)
    s = num_features / (num_features - 1)
    return s * (1 - jnp.asarray(attention)) ** 2


@calculator(static=("num_features",), step_size=positive)
def loss_asymptote(num_features: int, step_size: Any) -> Scalar:
    r"""The limit of L t in the second phase, :math:`(K - 1) / (4 \eta)`.

    Example:
        >>> float(loss_asymptote(5, 0.5))
        2.0

    Source: Huang et al. (2024), the second phase.
    """
    check_integer("num_features", num_features, 2)
    return (num_features - 1) / (4 * jnp.asarray(step_size, float))


def _time(u: Any, K: int, eta: Any) -> Array:
    s = K / (K - 1)
    return K / (2 * eta * s**2) * (_G(jnp.asarray(1 - 1 / K, u.dtype)) - _G(u))


def _G(u: Array) -> Array:
    poles = -1 / (2 * u**2) - 2 / u + 1 / (1 - u)
    return poles + 3 * jnp.log(u) - 3 * jnp.log1p(-u)
