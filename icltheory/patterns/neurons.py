"""Prunes neurons, the rows of W_O, by magnitude (Theorem 3)."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_key
from icltheory._names import Order
from icltheory.pruning import prune_rows

__all__ = ["prune_neurons"]


def prune_neurons(
    params: dict[str, Any],
    fraction: Real[ArrayLike, ""] | float | int,
    order: Order = "magnitude",
    key: Any = None,
) -> dict[str, Any]:
    r"""Removes neurons: rows of W_O become zero (Theorem 3).

    .. math:: |S| = \operatorname{round}(R m) , \qquad
        (W_O)_{i \cdot} \mapsto 0 \ \text{ for } i \in S ,

    the smallest rows first, the largest first, or at random. In a stack of layers every
    layer loses its own share. The fraction may be traced: a sweep is a ``vmap``.

    Args:
        params: Parameters of a pattern transformer, with ``"W_O"``; left as they are.
        fraction: R, in [0, 1].
        order: ``"magnitude"`` (small rows first), ``"reverse"`` (large rows first) or
            ``"random"``.
        key: Random key, for ``"random"`` alone.

    Returns:
        New parameters; all but ``"W_O"`` are shared.

    Example:
        >>> params = {"W_O": jnp.array([[2.0], [1.0], [3.0], [4.0]])}
        >>> prune_neurons(params, 0.5)["W_O"].ravel().tolist()
        [0.0, 0.0, 3.0, 4.0]
        >>> prune_neurons(params, 0.25, "reverse")["W_O"].ravel().tolist()
        [2.0, 1.0, 3.0, 0.0]

    Source: Li et al. (2024), Theorem 3 and Figure 14.
    """
    if key is not None:
        check_key("key", key)
    W = jnp.asarray(params["W_O"])
    if W.ndim == 2:
        return params | {"W_O": prune_rows(W, fraction, order=order, key=key)}
    keys = key if key is None else jax.random.split(key, W.shape[0])

    def one(W, key):
        return prune_rows(W, fraction, order=order, key=key)

    return params | {"W_O": jax.vmap(one)(W, keys)}
