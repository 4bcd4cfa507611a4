"""Prunes one matrix by its singular values, which a store may provide."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from icltheory.linalg import SVD
from icltheory.pruning.modules import Cutting


def cutter_of(
    W: Any,
    cutting: Cutting,
    systems: Any,
    sizes: Sequence[int],
    layer: int | None,
    name: str,
) -> Callable[[int], Any]:
    """Returns a function from a size to the matrix, by one decomposition in float32.

    Args:
        W: The matrix.
        cutting: How it is pruned.
        systems: Store of singular systems, or ``None``.
        sizes: What will be asked for; the full size leaves the matrix as it is.
        layer: Layer of the matrix, for errors; ``None`` outside of the layers.
        name: Its name.
    """
    full = cutting.kept(W.shape, 0)
    smaller = [size for size in sizes if size < full]
    if not smaller:
        return lambda size: W
    needed = max(smaller)
    wide = W.astype(jnp.promote_types(W.dtype, jnp.float32))
    if systems is None or cutting.method == "magnitude":
        cut = cutting.cutter(wide)
    else:
        parts = SVD(*(jnp.asarray(part) for part in systems.of(W)))
        if parts.s.size < needed:
            where = name if layer is None else f"{name} in layer {layer}"
            raise ValueError(
                f"systems: expected at least {needed} singular values of {where}, "
                f"got {parts.s.size}"
            )
        cut = cutting.spectral_cutter(wide, parts)

    def cut_to(size):
        if size == full:
            return W
        # On a GPU the default precision would round the factors to TF32.
        with jax.default_matmul_precision("highest"):
            return cut(size).astype(W.dtype)

    return cut_to
