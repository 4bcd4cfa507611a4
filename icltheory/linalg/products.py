"""Frobenius norms and inner products of products of thin factors."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._checks import check_shape
from icltheory._core import calculator, widened
from icltheory._typing import Array, Float, Scalar


@calculator
def thin_frobenius_inner(
    A: Float[ArrayLike, "_m _p"],
    B: Float[ArrayLike, "_n _p"],
    C: Float[ArrayLike, "_m _q"],
    D: Float[ArrayLike, "_n _q"],
) -> Scalar:
    r"""Frobenius inner product of two products, from their thin factors.

    .. math::
        \langle A B^\top, C D^\top \rangle_F
        = \mathbf 1^\top \left[(A^\top C) \circ (B^\top D)\right] \mathbf 1 .

    Cost O((m + n) p q); no m x n matrix is formed.

    Example:
        >>> import jax.numpy as jnp
        >>> u, v = jnp.array([[1.0], [2.0]]), jnp.array([[3.0], [4.0], [0.0]])
        >>> float(thin_frobenius_inner(u, v, u, v))
        125.0

    Source: Yao et al. (2024), equation (18) and Example 1.
    """
    A, B, C, D = map(widened, (A, B, C, D))
    check_shape("A", A, ("m", "p"))
    check_shape("B", B, ("n", A.shape[1]))
    check_shape("C", C, (A.shape[0], "q"))
    check_shape("D", D, (B.shape[0], C.shape[1]))
    return jnp.sum((A.T @ C) * (B.T @ D))


def frobenius_norm(W):
    """Frobenius norm whose squares stay in range, with the derivative 0 at 0."""
    w = magnitude(W)
    return w * safe_sqrt(jnp.sum((W / w) ** 2))


def magnitude(x):
    """Largest power of two up to the largest size of an entry, to divide by exactly.

    1 where all are zero or one is not finite; a constant for derivatives.
    """
    limits = jnp.finfo(x.dtype)
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(x), initial=0))
    # The inverse is also a normal number.
    exponent = jnp.clip(jnp.frexp(largest)[1] - 1, limits.minexp, -limits.minexp)
    usable = jnp.isfinite(largest) & (largest > 0)
    return jnp.where(usable, jnp.ldexp(jnp.ones((), x.dtype), exponent), 1)


@calculator
def safe_sqrt(x: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Square root whose value and derivative are 0 for non-positive arguments.

    Rounding may make squared lengths slightly negative. NaN stays NaN.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> safe_sqrt(jnp.array([-1.0, 0.0, 4.0])).tolist()
        [0.0, 0.0, 2.0]
        >>> float(jax.grad(safe_sqrt)(jnp.array(0.0)))
        0.0
    """
    nothing = x <= 0
    return jnp.where(nothing, 0, jnp.sqrt(jnp.where(nothing, 1, x)))
