"""Clipping that also equalises the kept singular values, as an ablation."""

from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._calculators import calculator
from icltheory._checks import check_finite, check_shape
from icltheory._names import Rule
from icltheory._precision import exact_products
from icltheory._typing import Array, Float, Int
from icltheory.linalg import SVD, svd
from icltheory.pruning.clipping import resolve_rank

__all__ = ["whiten"]


@calculator(compiled=False)
def whiten(
    W: Float[ArrayLike, "*_shape"],
    *,
    rate: Any = None,
    rank: int | None = None,
    rule: Rule = "floor",
) -> Float[Array, "m n"]:
    r"""Keeps the r largest singular directions and makes their singular values equal.

    .. math:: W \mapsto \bar s_r \sum_{i \le r} u_i v_i^\top , \qquad
        \bar s_r = \Big( \frac1r \sum_{i \le r} s_i^2 \Big)^{1/2}

    The spaces and the Frobenius norm are those of :func:`clip`, and the condition
    number of what is kept is 1. Beside it clipping shows what the sizes of the singular
    values matter, apart from the directions. At rate 0 or full rank the matrix itself
    is returned, unchanged: that is the unpruned model. By a full decomposition.

    Args:
        W: The matrix, ``(m, n)``.
        rate: Clipping rate :math:`\xi`, in [0, 1); this or ``rank``.
        rank: Rank r, from 1 to min(m, n); this or ``rate``.
        rule: How a rate becomes a rank: ``"floor"``, ``"nearest"`` or ``"ceil"``.

    Returns:
        The matrix of rank r, with the dtype of ``W``.

    Example:
        >>> import jax.numpy as jnp
        >>> W = jnp.diag(jnp.array([7.0, 1.0, 0.5, 0.1]))
        >>> jnp.diag(whiten(W, rate=0.5)).round(6).tolist()
        [5.0, 5.0, 0.0, 0.0]

    Source: Yao et al. (2024), section 3.4, which chooses layers by condition numbers.
    """
    check_shape("W", W, ("m", "n"))
    check_finite("W", W)
    W = jnp.asarray(W)
    rank = resolve_rank(W.shape, rate, rank, rule)
    if rank == min(W.shape):
        return W
    wide = W.astype(jnp.promote_types(W.dtype, jnp.float32))
    return equal_values(svd(wide), rank).astype(W.dtype)


@exact_products
def equal_values(parts: SVD, rank: int | Int[Array, ""]) -> Float[Array, "m n"]:
    """First ``rank`` directions, with the root mean square of their singular values."""
    keep = jnp.arange(parts.s.shape[-1]) < rank
    mean_square = jnp.sum(jnp.where(keep, parts.s**2, 0)) / jnp.maximum(rank, 1)
    equal = jnp.where(keep, jnp.sqrt(mean_square), 0)
    return (parts.U * equal[None, :]) @ parts.Vt
