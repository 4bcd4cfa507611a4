"""Truncated singular value decompositions, with a stable derivative."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from icltheory._checks import check_shape, count
from icltheory._core import (
    Record,
    calculator,
    exact_products,
    where_valid,
    widened,
)
from icltheory._typing import Array, Float, Int


def as_matrix(W: ArrayLike) -> Array:
    """Checks for a non-empty matrix, and converts half precision to float32."""
    matrix = widened(W)
    if matrix.ndim < 2:
        raise ValueError(f"W: expected shape (..., m, n), got {matrix.shape}")
    if 0 in matrix.shape[-2:]:
        raise ValueError(f"W: expected at least one entry, got shape {matrix.shape}")
    return matrix


def finite_or_nan(W: Array) -> Array:
    """Replaces each matrix of a stack that has a non-finite entry by NaN.

    Every singular value decomposition gets its result, since LAPACK returns NaN for a
    matrix with NaN but may never return for one with an infinite entry.
    """
    finite = jnp.all(jnp.isfinite(W), axis=(-2, -1), keepdims=True)
    return W * jnp.where(finite, 1, jnp.nan).astype(W.dtype)


class SVD(Record):
    r"""A thin singular value decomposition that can be truncated to any rank.

    .. math::
        W = U \operatorname{diag}(s) V^\top, \qquad
        W_r = \sum_{i \le r} s_i\, u_i v_i^\top .

    One decomposition serves every rank: ``truncate`` only masks ``s``, so that a sweep
    over ranks is one program and ``jax.vmap`` over the rank costs no second SVD.
    Differentiating through ``U`` and ``Vt`` gives NaN where singular values repeat;
    :func:`low_rank_approximation` has the safe derivative. The values s descend, and
    the rows of ``Vt`` are :math:`v_i^\top`, k = min(m, n) of them.

    Source: Eckart and Young (1936).
    """

    U: Float[Array, "*batch m k"]
    s: Float[Array, "*batch k"]
    Vt: Float[Array, "*batch k n"]

    @exact_products
    def truncate(self, rank: int | Int[Array, ""]) -> Float[Array, "*batch m n"]:
        """The best approximation of rank ``rank`` in every unitarily invariant norm.

        The rank, from 0 to k, may be traced; out of range the matrix is NaN.
        """
        size = self.s.shape[-1]
        kept = jnp.where(_keep(rank, size), self.s, 0)
        product = (self.U * kept[..., None, :]) @ self.Vt
        return where_valid(product, count(0, size)("rank", rank))


@calculator
def svd(W: Float[ArrayLike, "*batch m n"]) -> SVD:
    r"""Thin singular value decomposition :math:`W = U \operatorname{diag}(s) V^\top`.

    Cost O(m n min(m, n)) for each matrix.

    Example:
        >>> import jax.numpy as jnp
        >>> svd(jnp.diag(jnp.array([1.0, 3.0]))).truncate(1).round(6).tolist()
        [[0.0, 0.0], [0.0, 3.0]]

    Source: Eckart and Young (1936).
    """
    U, s, Vt = jnp.linalg.svd(finite_or_nan(as_matrix(W)), full_matrices=False)
    return SVD(U, s, Vt)


def up_to_size(name, rank, given):
    """Checks a rank from 0 to min(m, n) of the matrix W."""
    check_shape("W", given["W"], ("m", "n"))
    return count(0, min(np.shape(given["W"])))(name, rank)


@calculator(integers=("rank",), rank=up_to_size)
def low_rank_approximation(
    W: Float[ArrayLike, "m n"], rank: int | Int[Array, ""]
) -> Float[Array, "m n"]:
    r"""Best rank-r approximation, with a derivative also for equal singular values.

    .. math::
        W_r = \sum_{i \le r} s_i\, u_i v_i^\top, \qquad
        \|W - W_r\|_F^2 = \sum_{i > r} s_i^2 .

    With :math:`E` a perturbation, :math:`e = U^\top E V` and :math:`P = U_r U_r^\top`,

    .. math::
        dW_r = P E + (1 - U U^\top) E V_r V_r^\top
               + \sum_{i \le r < j} \frac{s_i e_{ji} + s_j e_{ij}}{s_i^2 - s_j^2}
                 \left(s_i\, u_j v_i^\top + s_j\, u_i v_j^\top\right).

    Only a kept and a removed value are ever compared. The derivative is therefore exact
    and finite when values repeat among the kept or among the removed ones, as they do
    for the identity-like weights of gradient descent, where the derivative of the SVD
    itself is NaN. At a tie across the cut, :math:`s_r = s_{r+1}` up to rounding, the
    map has no derivative; the tied pairs are then left out of the sum. First
    derivatives only.

    The rank r, from 0 to min(m, n), may be traced. The dtype is that of ``W``.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> W = jnp.diag(jnp.array([2.0, 2.0, 1.0]))
        >>> low_rank_approximation(W, 1).round(6).sum().item()
        2.0
        >>> kept = lambda W: (low_rank_approximation(W, 2) ** 2).sum() / 2
        >>> jnp.diag(jax.grad(kept)(W)).round(6).tolist()
        [2.0, 2.0, 0.0]

    Source: Eckart and Young (1936).
    """
    matrix = as_matrix(W)
    keep = _keep(rank, min(matrix.shape))
    return _truncate(matrix, keep).astype(jnp.result_type(W))


@jax.custom_jvp
def _truncate(W, keep):
    U, s, Vt = jnp.linalg.svd(finite_or_nan(W), full_matrices=False)
    return (U * jnp.where(keep, s, 0)[None]) @ Vt


@_truncate.defjvp
@exact_products
def _truncate_jvp(primals, tangents):
    (W, keep), (E, _) = primals, tangents
    U, s, Vt = jnp.linalg.svd(finite_or_nan(W), full_matrices=False)
    kept, e = keep.astype(s.dtype), U.T @ E @ Vt.T
    # The derivative does not depend on the scale, which is removed so that squares
    # neither vanish nor overflow.
    a = s / jnp.where(s[:1] == 0, 1, s[:1])
    gap = a[None] - a[:, None]  # [j, i], needed for removed j and kept i
    tie = max(W.shape) * jnp.finfo(s.dtype).eps
    crossing = (~keep[:, None] & keep[None]) & (gap > tie)
    c = jnp.where(crossing, (e * a[None] + e.T * a[:, None]), 0)
    c = c / jnp.where(crossing, gap * (a[None] + a[:, None]), 1)
    mixed = c * a[None] + (c * a[:, None]).T
    inside = (U * kept[None]) @ (U.T @ E) + U @ mixed @ Vt
    outside = (E - U @ (U.T @ E)) @ (Vt.T * kept[None]) @ Vt
    return (U * (kept * s)[None]) @ Vt, inside + outside


def _keep(rank, size):
    return jnp.arange(size) < rank
