"""Prunes one matrix: to a lower rank, by the magnitude of its entries, by its rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import (
    Check,
    check_choice,
    check_shape,
    count,
    finite,
    is_tracer,
    one_line,
    scalar,
    within,
)
from icltheory._core import calculator
from icltheory._names import Order, Rule
from icltheory._precision import exact_products, finite_or_nan, widened
from icltheory._typing import Array, Float, Int, PRNGKey, Scalar
from icltheory.linalg import SVD, low_rank_approximation, svd
from icltheory.pruning.rates import check_one_of, kept_of, rank_for_rate

__all__ = [
    "FrobeniusSplit",
    "clip",
    "frobenius_split",
    "magnitude_prune",
    "prune_rows",
    "whiten",
]

ORDERS = ("magnitude", "reverse", "random")
_whole = Check(lambda n: n == n // 1, "a whole number")


@calculator(compiled=False, static=("rate", "rank", "rule"), W=finite)
def clip(
    W: Float[ArrayLike, "*_shape"],
    *,
    rate: Any = None,
    rank: int | None = None,
    rule: Rule = "floor",
) -> Float[Array, "m n"]:
    r"""Keeps the r largest singular values of a matrix and sets the others to zero.

    .. math:: W_r = \sum_{i \le r} s_i\, u_i v_i^\top

    The Eckart-Young optimum, by a full decomposition in float32 or better. At rate 0 or
    full rank the matrix itself is returned, unchanged. The derivative is that of
    :func:`~icltheory.linalg.low_rank_approximation` and survives repeated values.

    Args:
        rate: Clipping rate :math:`\xi`, in [0, 1); this or ``rank``.
        rank: Rank r, from 1 to min(m, n); this or ``rate``.
        rule: How a rate becomes a rank, see :func:`rank_for_rate`.

    Example:
        >>> clip([[3.0, 0.0], [0.0, 1.0]], rate=0.5).round(6).tolist()
        [[3.0, 0.0], [0.0, 0.0]]

    Source: Yao et al. (2024), section 2; Eckart and Young (1936).
    """
    W, rank = _matrix_and_rank(W, rate, rank, rule)
    return W if rank == min(W.shape) else low_rank_approximation(W, rank)


@calculator(compiled=False, static=("rate", "rank", "rule"), W=finite)
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

    The spaces and the Frobenius norm are those of :func:`clip`, whose arguments it
    takes, and the condition number of what is kept is 1. Beside it clipping shows what
    the sizes of the singular values matter, apart from the directions.

    Example:
        >>> import numpy as np
        >>> whiten(np.diag([7.0, 1.0, 0.5, 0.1]), rate=0.5).diagonal().round(6).tolist()
        [5.0, 5.0, 0.0, 0.0]

    Source: Yao et al. (2024), section 3.4, which chooses layers by condition numbers.
    """
    W, rank = _matrix_and_rank(W, rate, rank, rule)
    if rank == min(W.shape):
        return W
    return equal_values(svd(widened(W)), rank).astype(W.dtype)


@exact_products
def equal_values(parts: SVD, rank: int | Int[Array, ""]) -> Float[Array, "m n"]:
    """First ``rank`` directions, with the root mean square of their singular values."""
    keep = jnp.arange(parts.s.shape[-1]) < rank
    mean_square = jnp.sum(jnp.where(keep, parts.s**2, 0)) / jnp.maximum(rank, 1)
    equal = jnp.where(keep, jnp.sqrt(mean_square), 0)
    return (parts.U * equal[None, :]) @ parts.Vt


def _matrix_and_rank(W, rate, rank, rule):
    check_shape("W", W, ("m", "n"))
    W = jnp.asarray(W)
    return W, resolve_rank(W.shape, rate, rank, rule)


def resolve_rank(shape: tuple[int, ...], rate: Any, rank: Any, rule: Rule) -> int:
    """Returns the rank given by exactly one of a rate and a rank."""
    if 0 in shape:
        raise ValueError(f"W: expected at least one entry, got shape {shape}")
    check_one_of(rate=rate, rank=rank)
    if rank is None:
        return rank_for_rate(shape, rate, rule)
    known = not is_tracer(rank) and not isinstance(rank, bool)
    if not known or rank not in range(1, min(shape) + 1):
        got = one_line(rank)
        raise ValueError(f"rank: expected 1 <= rank <= {min(shape)}, got {got}")
    return int(rank)


class FrobeniusSplit(NamedTuple):
    """Squared Frobenius norms of the kept and the removed part of a clipped matrix.

    Source: Eckart and Young (1936).
    """

    kept: Scalar
    removed: Scalar


def _up_to_size(name, rank, given):
    check_shape("W", given["W"], ("m", "n"))
    return count(0, min(np.shape(given["W"])))(name, rank)


@calculator(integers=("rank",), W=finite, rank=_up_to_size)
def frobenius_split(
    W: Float[ArrayLike, "*_shape"], rank: int | Int[Array, ""]
) -> FrobeniusSplit:
    r"""Squared Frobenius norms of what clipping to rank r keeps and removes.

    .. math::
        \|W_r\|_F^2 = \sum_{i \le r} s_i^2 , \qquad
        \|W - W_r\|_F^2 = \sum_{i > r} s_i^2 , \qquad 0 \le r \le \min(m, n) .

    Both are squared, and read off the singular values: the product :math:`W_r` is never
    formed, and the two add up to :math:`\|W\|_F^2`. The derivatives are exact,
    :math:`2 W_r` and :math:`2 (W - W_r)`, also where values repeat; at a tie across the
    cut they are one choice among many. The rank may be traced.

    Example:
        >>> split = frobenius_split([[3.0, 0, 0], [0, 2, 0], [0, 0, 1]], 1)
        >>> round(float(split.kept), 6), round(float(split.removed), 6)
        (9.0, 5.0)

    Source: Yao et al. (2024), Example 1, with its line (**) read with squares.
    """
    wide = widened(W)
    return FrobeniusSplit(*_split(wide, jnp.arange(min(wide.shape)) < rank))


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


@calculator(compiled=False, static=("rate", "kept", "rule"), W=finite)
def magnitude_prune(
    W: Float[ArrayLike, "*_shape"],
    *,
    rate: Any = None,
    kept: int | None = None,
    rule: Rule = "floor",
) -> Float[Array, "m n"]:
    r"""Sets the entries of smallest magnitude to zero.

    .. math:: W_{ij} \mapsto W_{ij}\, 1[\,|W_{ij}| \text{ is among the } p \text{
        largest}\,] , \qquad p = \lfloor (1 - \xi)\, m n + 10^{-9} m n \rfloor

    The count is exact, by the rational rule of :func:`rank_for_rate`. Of equal
    magnitudes the one that comes first, row by row, is dropped first. At rate 0 the
    matrix is returned unchanged. To compare with clipping at rank r on equal storage
    ask for ``kept=kept_parameters(W.shape, r)``. Cost of one sort.

    Args:
        rate: Share :math:`\xi` of the entries to drop, in [0, 1); this or ``kept``.
        kept: Number p of entries to keep, from 0 to m n; this or ``rate``.
        rule: How a rate becomes a count: ``"floor"``, ``"nearest"`` or ``"ceil"``.

    Example:
        >>> magnitude_prune([[3.0, -1.0], [1.0, -4.0]], rate=0.25).tolist()
        [[3.0, 0.0], [1.0, -4.0]]

    Source: Frankle and Carbin (2018), section 1.
    """
    check_shape("W", W, ("m", "n"))
    W = jnp.asarray(W)
    check_one_of(rate=rate, kept=kept)
    kept = kept_of(W.size, rate, rule) if kept is None else kept
    if not 0 <= kept <= W.size:
        raise ValueError(f"kept: expected 0 <= kept <= {W.size}, got {kept}")
    return magnitude_cutter(W)(kept)


def magnitude_cutter(W: Float[Array, "m n"]) -> Callable[[Any], Array]:
    """Sorts a matrix once and returns a function that keeps any number of entries."""
    order = jnp.argsort(jnp.abs(W).ravel(), stable=True)
    place = _inverse(order).reshape(W.shape)

    def cut(kept: int | Int[Array, ""]) -> Float[Array, "m n"]:
        return jnp.where(place >= W.size - kept, W, 0)

    return cut


def _inverse(order):
    """Place of each entry in an order."""
    numbers = jnp.arange(order.size, dtype=order.dtype)
    return jnp.zeros_like(order).at[order].set(numbers)


def _of_rows(name, kept, given):
    most = np.shape(given["W"])[0]
    return (scalar & within(0, most) & _whole)(name, kept)


@calculator(
    static=("order",),
    integers=("kept",),
    fraction=scalar & within(0, 1),
    kept=_of_rows,
)
def prune_rows(
    W: Float[ArrayLike, "m n"],
    fraction: Real[ArrayLike, ""] | None = None,
    *,
    kept: Any = None,
    order: Order = "magnitude",
    key: PRNGKey | None = None,
) -> Float[Array, "m n"]:
    r"""Sets rows of a matrix, its neurons, to zero in order of their norm.

    .. math:: W_{i \cdot} \mapsto W_{i \cdot}\, 1[\text{place of } i \ge r] , \qquad
        r = \operatorname{round}(R m) ,

    where the place counts rows by :math:`\|W_{i \cdot}\|_2` from the smallest
    (``"magnitude"``), from the largest (``"reverse"``), or at random with ``key``. Of
    equal norms the first row goes first; a half rounds to even. Rows that are kept are
    unchanged to the bit. Fraction and count may be traced: a sweep over rates is one
    ``vmap``, with one sort.

    Args:
        fraction: Share R of the rows to drop, in [0, 1]; this or ``kept``.
        kept: Number m - r of rows to keep, from 0 to m; this or ``fraction``.

    Example:
        >>> W = [[3.0, 4.0], [1.0, 0.0], [0.0, 2.0]]
        >>> prune_rows(W, 1 / 3).tolist()
        [[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]]
        >>> prune_rows(W, kept=1, order="reverse").tolist()
        [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]

    Source: Li et al. (2024), Theorem 3.
    """
    check_shape("W", W, ("m", "n"))
    check_choice("order", order, ORDERS)
    if (order == "random") != (key is not None):
        expected, got = ("a key", "None") if key is None else ("None", "a key")
        raise ValueError(f"key: expected {expected} with order {order!r}, got {got}")
    check_one_of(fraction=fraction, kept=kept)
    W = jnp.asarray(W)
    m = W.shape[0]
    if kept is None:
        removed = jnp.round(jnp.asarray(fraction, float) * m)
    else:
        removed = m - jnp.asarray(kept)
    if key is not None:
        place = jax.random.permutation(key, m)
    else:
        norms = jnp.linalg.norm(widened(W), axis=1)
        signed = norms if order == "magnitude" else -norms
        place = _inverse(jnp.argsort(signed, stable=True))
    return jnp.where((place >= removed)[:, None], W, jnp.zeros((), W.dtype))
