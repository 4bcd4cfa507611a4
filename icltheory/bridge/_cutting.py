"""Prunes one matrix of a language model; a store may provide its singular system."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from icltheory.linalg import SVD
from icltheory.pruning import Method


def cutter_of(
    W: Any,
    method: Method,
    systems: Any,
    strengths: Sequence[Any],
    place: tuple[int | None, str],
) -> Callable[[Any], Any]:
    """Returns a function from a strength to the matrix in its dtype.

    Where a strength keeps all of it, the matrix is unchanged, and it is decomposed only
    if one of the strengths that will be asked for does not.

    Args:
        W: The matrix.
        method: How it is pruned.
        systems: Store of singular systems, or ``None``.
        strengths: What will be asked for.
        place: Layer, ``None`` outside of the layers, and name of the matrix.
    """
    full = method.kept(W.shape, 0)
    kept = [method.kept(W.shape, strength) for strength in strengths]
    smaller = [size for size in kept if size < full]
    if not smaller:
        return lambda strength: W
    if systems is None or not method.spectral:
        cut = method.cutter(W, place)
    else:
        parts, needed = SVD(*map(jnp.asarray, systems.of(W))), max(smaller)
        if parts.s.size < needed:
            layer, name = place
            where = name if layer is None else f"{name} in layer {layer}"
            raise ValueError(
                f"systems: expected at least {needed} singular values of {where}, "
                f"got {parts.s.size}"
            )
        sized: Any = method
        by_size = sized.by_size(W, parts)

        def cut(strength):
            return by_size(method.kept(W.shape, strength))

    def cut_to(strength):
        whole = method.kept(W.shape, strength) == full
        return W if whole else cut(strength).astype(W.dtype)

    return cut_to
