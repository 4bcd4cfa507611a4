"""Magnitude pruning of one matrix: its smallest entries become zero."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._calculators import calculator
from icltheory._checks import check_finite, check_shape
from icltheory._names import Rule
from icltheory._typing import Array, Float, Int
from icltheory.pruning.rates import check_one_of, kept_of

__all__ = ["magnitude_prune"]


@calculator(compiled=False)
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

    The count is exact, by the rational rule of
    :func:`~icltheory.pruning.rank_for_rate`. Of equal magnitudes the one that comes
    first, row by row, is dropped first. At rate 0 the matrix is returned unchanged. To
    compare with clipping at rank r on equal storage ask for
    ``kept=kept_parameters(W.shape, r)``. Cost of one sort.

    Args:
        W: The matrix, ``(m, n)``.
        rate: Share :math:`\xi` of the entries to drop, in [0, 1); this or ``kept``.
        kept: Number p of entries to keep, from 0 to m n; this or ``rate``.
        rule: How a rate becomes a count: ``"floor"``, ``"nearest"`` or ``"ceil"``.

    Returns:
        The pruned matrix, with the dtype of ``W``.

    Example:
        >>> import jax.numpy as jnp
        >>> magnitude_prune(jnp.array([[3.0, -1.0], [1.0, -4.0]]), rate=0.25).tolist()
        [[3.0, 0.0], [1.0, -4.0]]

    Source: Frankle and Carbin (2018), section 1.
    """
    check_shape("W", W, ("m", "n"))
    check_finite("W", W)
    W = jnp.asarray(W)
    check_one_of(rate=rate, kept=kept)
    kept = kept_of(W.size, rate, rule) if kept is None else kept
    if not 0 <= kept <= W.size:
        raise ValueError(f"kept: expected 0 <= kept <= {W.size}, got {kept}")
    return magnitude_cutter(W)(kept)


def magnitude_cutter(W: Float[Array, "m n"]) -> Callable[[Any], Array]:
    """Sorts a matrix once and returns a function that keeps any number of entries."""
    order = jnp.argsort(jnp.abs(W).ravel(), stable=True)
    place = jnp.zeros(W.size, order.dtype).at[order].set(jnp.arange(W.size))
    place = place.reshape(W.shape)

    def cut(kept: int | Int[Array, ""]) -> Float[Array, "m n"]:
        return jnp.where(place >= W.size - kept, W, 0)

    return cut
