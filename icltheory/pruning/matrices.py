"""Prunes one matrix, by singular values or entries, or its rows."""

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
    finite,
    scalar,
    within,
)
from icltheory._core import calculator, exact_products, widened
from icltheory._typing import Array, Float, Int, Order, PRNGKey, Scalar
from icltheory.linalg.decomposition import (
    finite_or_nan,
    low_rank_approximation,
    up_to_size,
)
from icltheory.pruning.methods import LowRank, Method, check_method, inverse
from icltheory.pruning.rates import as_strength, check_ranks

ORDERS = ("magnitude", "reverse", "random")
_whole = Check(lambda n: n == n // 1, "a whole number")


@calculator(compiled=False, static=("strength", "method"), W=finite)
def prune(
    W: Float[ArrayLike, "*_shape"],
    strength: Any,
    *,
    method: Method = LowRank(),
) -> Float[Array, "m n"]:
    r"""Prunes a matrix at a rate in [0, 1) or to a :class:`Rank`.

    .. math:: W_r = \sum_{i \le r} s_i\, u_i v_i^\top

    unless another ``method`` is given: :class:`Whitened`, :class:`Magnitude`. At rate 0
    or full rank the matrix itself is returned. The derivative of :class:`LowRank` is
    that of :func:`~icltheory.linalg.low_rank_approximation` and survives repeated
    values.

    Example:
        >>> from icltheory.pruning import Rank, Whitened
        >>> prune([[3.0, 0.0], [0.0, 1.0]], 0.5).round(6).tolist()
        [[3.0, 0.0], [0.0, 0.0]]
        >>> prune(jnp.diag(jnp.array([7.0, 1.0, 0.5, 0.1])), Rank(2),
        ...       method=Whitened()).diagonal().round(6).tolist()
        [5.0, 5.0, 0.0, 0.0]

    Source: Yao et al. (2024), section 2; Eckart and Young (1936).
    """
    check_shape("W", W, ("m", "n"))
    W = jnp.asarray(W)
    if 0 in W.shape:
        raise ValueError(f"W: expected at least one entry, got shape {W.shape}")
    check_method(method)
    strength = as_strength(strength, "strength: expected a number")
    check_ranks([W.shape], [strength])
    if method.kept(W.shape, strength) == method.kept(W.shape, 0):
        return W
    if isinstance(method, LowRank):
        return low_rank_approximation(W, method.kept(W.shape, strength))
    return method.cutter(W)(strength)


class FrobeniusSplit(NamedTuple):
    """Squared Frobenius norms of the kept and the removed part of a clipped matrix.

    Source: Eckart and Young (1936).
    """

    kept: Scalar
    removed: Scalar


@calculator(integers=("rank",), W=finite, rank=up_to_size)
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
    if (fraction is None) == (kept is None):
        got = "neither" if kept is None else "both"
        raise ValueError(f"fraction, kept: expected exactly one of them, got {got}")
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
        place = inverse(jnp.argsort(signed, stable=True))
    return jnp.where((place >= removed)[:, None], W, jnp.zeros((), W.dtype))
