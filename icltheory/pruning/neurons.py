"""Neuron pruning of one matrix: whole rows become zero."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_choice, check_range, check_shape, check_values
from icltheory._names import Order
from icltheory._precision import widened
from icltheory._typing import Array, Float
from icltheory.pruning.rates import check_one_of

__all__ = ["prune_rows"]

ORDERS = ("magnitude", "reverse", "random")


@calculator
def prune_rows(
    W: Float[ArrayLike, "m n"],
    fraction: Real[ArrayLike, ""] | None = None,
    *,
    kept: Any = None,
    order: Order = "magnitude",
    key: Any = None,
) -> Float[Array, "m n"]:
    r"""Sets rows of a matrix, its neurons, to zero in order of their norm.

    .. math:: W_{i \cdot} \mapsto W_{i \cdot}\, 1[\text{place of } i \ge r] , \qquad
        r = \operatorname{round}(R m) ,

    where the place counts rows by :math:`\|W_{i \cdot}\|_2` from the smallest
    (``"magnitude"``), from the largest (``"reverse"``), or at random. Of equal norms
    the first row goes first; a half rounds to even. Fraction and count may be traced:
    a sweep over rates is one ``vmap``, with one sort.

    Args:
        W: The matrix, ``(m, n)``.
        fraction: Share R of the rows to drop, in [0, 1]; this or ``kept``.
        kept: Number m - r of rows to keep, from 0 to m; this or ``fraction``.
        order: ``"magnitude"``, ``"reverse"`` or ``"random"``.
        key: Random key, for ``"random"`` alone.

    Returns:
        The pruned matrix; rows that are kept are unchanged to the bit.

    Example:
        >>> import jax.numpy as jnp
        >>> W = jnp.array([[3.0, 4.0], [1.0, 0.0], [0.0, 2.0]])
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
    W = jnp.asarray(W)
    count = _count(W.shape[0], fraction, kept)
    place = _places(W, order, key)
    return jnp.where((place >= count)[:, None], W, jnp.zeros((), W.dtype))


def _count(m, fraction, kept):
    """Number of rows to remove."""
    check_one_of(fraction=fraction, kept=kept)
    name, value = ("fraction", fraction) if kept is None else ("kept", kept)
    check_range(name, value, 0, 1 if kept is None else m)
    if kept is not None:
        check_values("kept", kept, lambda n: n == n // 1, "a whole number")
        return m - jnp.asarray(kept)
    return jnp.round(jnp.asarray(fraction, float) * m)


def _places(W, order, key):
    """Position of each row in the order of removal."""
    m = W.shape[0]
    if order == "random":
        return jax.random.permutation(key, m)
    norms = jnp.linalg.norm(widened(W), axis=1)
    first = jnp.argsort(norms if order == "magnitude" else -norms, stable=True)
    return jnp.zeros(m, first.dtype).at[first].set(jnp.arange(m, dtype=first.dtype))
