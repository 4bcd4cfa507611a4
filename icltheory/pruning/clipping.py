"""Clips one matrix to a lower rank, and measures the kept and removed parts."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._calculators import calculator
from icltheory._checks import check_count, check_finite, check_range, check_shape
from icltheory._names import Rule
from icltheory._precision import exact_products, finite_or_nan
from icltheory._typing import Array, Float, Int, Scalar
from icltheory.linalg import low_rank_approximation
from icltheory.pruning.rates import check_one_of, rank_for_rate

__all__ = ["FrobeniusSplit", "clip", "frobenius_split"]


@calculator(compiled=False)
def clip(
    W: Float[ArrayLike, "*_shape"],
    *,
    rate: Any = None,
    rank: int | None = None,
    rule: Rule = "floor",
) -> Float[Array, "m n"]:
    r"""Keeps the r largest singular values of a matrix and sets the others to zero.

    .. math:: W_r = \sum_{i \le r} s_i\, u_i v_i^\top

    The Eckart-Young optimum, by a full decomposition in float32 or better; not the
    randomised one, whose error depends on the draw. At rate 0 or full rank the matrix
    itself is returned, unchanged. The derivative is that of
    :func:`~icltheory.linalg.low_rank_approximation` and survives repeated values.

    Args:
        W: The matrix, ``(m, n)``.
        rate: Clipping rate :math:`\xi`, in [0, 1); this or ``rank``.
        rank: Rank r, from 1 to min(m, n); this or ``rate``.
        rule: How a rate becomes a rank: ``"floor"``, ``"nearest"`` or ``"ceil"``.

    Returns:
        :math:`W_r`, with the dtype of ``W``.

    Example:
        >>> import jax.numpy as jnp
        >>> clip(jnp.diag(jnp.array([3.0, 1.0])), rate=0.5).round(6).tolist()
        [[3.0, 0.0], [0.0, 0.0]]

    Source: Yao et al. (2024), section 2; Eckart and Young (1936).
    """
    check_shape("W", W, ("m", "n"))
    check_finite("W", W)
    W = jnp.asarray(W)
    rank = resolve_rank(W.shape, rate, rank, rule)
    return W if rank == min(W.shape) else low_rank_approximation(W, rank)


class FrobeniusSplit(NamedTuple):
    """Squared Frobenius norms of the two parts of a clipped matrix.

    Args:
        kept: Squared norm of the part that is kept.
        removed: Squared norm of the part that is dropped.

    Source: Eckart and Young (1936).
    """

    kept: Scalar
    removed: Scalar


@calculator
def frobenius_split(
    W: Float[ArrayLike, "*_shape"], rank: int | Int[Array, ""]
) -> FrobeniusSplit:
    r"""Squared Frobenius norms of what clipping keeps and removes.

    .. math::
        \|W_r\|_F^2 = \sum_{i \le r} s_i^2 , \qquad
        \|W - W_r\|_F^2 = \sum_{i > r} s_i^2 .

    Both are squared, and read off the singular values: the product :math:`W_r` is never
    formed, and the two add up to :math:`\|W\|_F^2`. The derivatives are exact,
    :math:`2 W_r` and :math:`2 (W - W_r)`, also where values repeat; at a tie across the
    cut they are one choice among many.

    Args:
        W: The matrix, ``(m, n)``.
        rank: Rank r, from 0 to min(m, n); may be traced.

    Returns:
        ``(kept, removed)``.

    Example:
        >>> import jax.numpy as jnp
        >>> split = frobenius_split(jnp.diag(jnp.array([3.0, 2.0, 1.0])), 1)
        >>> round(float(split.kept), 6), round(float(split.removed), 6)
        (9.0, 5.0)

    Source: Yao et al. (2024), Example 1, with its line (**) read with squares.
    """
    check_shape("W", W, ("m", "n"))
    check_finite("W", W)
    W = jnp.asarray(W)
    size = min(W.shape)
    check_range("rank", rank, 0, size)
    check_count("rank", rank)
    wide = W.astype(jnp.promote_types(W.dtype, jnp.float32))
    return FrobeniusSplit(*_split(wide, jnp.arange(size) < rank))


@jax.custom_jvp
def _split(W, keep):
    squares = jnp.linalg.svd(finite_or_nan(W), compute_uv=False) ** 2
    return jnp.sum(jnp.where(keep, squares, 0)), jnp.sum(jnp.where(keep, 0, squares))


@_split.defjvp
@exact_products
def _split_jvp(primals, tangents):
    (W, keep), (E, _) = primals, tangents
    U, s, Vt = jnp.linalg.svd(finite_or_nan(W), full_matrices=False)
    slopes = 2 * s * jnp.einsum("ji,jk,ik->i", U, E, Vt)
    kept, removed = (jnp.where(m, s**2, 0).sum() for m in (keep, ~keep))
    kept_moves, removed_moves = (jnp.where(m, slopes, 0).sum() for m in (keep, ~keep))
    return (kept, removed), (kept_moves, removed_moves)


def resolve_rank(shape: tuple[int, ...], rate: Any, rank: Any, rule: Rule) -> int:
    """Returns the rank given by exactly one of a rate and a rank."""
    if 0 in shape:
        raise ValueError(f"W: expected at least one entry, got shape {shape}")
    check_one_of(rate=rate, rank=rank)
    if rank is None:
        return rank_for_rate(shape, rate, rule)
    if isinstance(rank, bool) or int(rank) != rank or not 1 <= rank <= min(shape):
        raise ValueError(f"rank: expected 1 <= rank <= {min(shape)}, got {rank}")
    return int(rank)
