"""The matrices of a pruned module at every rate."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import check_finite
from icltheory.bridge._arrays import gathered, spread_like
from icltheory.bridge.spectra import ClippingMethod
from icltheory.layered import MatrixSpec, get_matrix
from icltheory.linalg import SVD
from icltheory.pruning import module_matrices
from icltheory.pruning.modules import Cutting


def pruned_stacks(
    model: Any,
    layer: int,
    module: str,
    rates: Sequence[Any],
    method: str | ClippingMethod,
    at_least_one: bool,
    systems: Any,
) -> tuple[tuple[MatrixSpec, ...], tuple[jax.Array, ...]]:
    """Returns paths within the layer, each with its matrices stacked over rates."""
    kind = method if isinstance(method, str) else "svd"
    cutting = Cutting(kind, "floor", at_least_one)
    specs = module_matrices(model, layer, module)
    cutting.kept_table(model.params, specs, rates)
    stacks = []
    for number, spec in enumerate(specs):
        W = get_matrix(model.params, spec)
        whole = gathered(W, number)
        check_finite(spec.name, whole)
        place = (layer, spec.name)
        stack = _stack(whole, rates, cutting, method, systems, place)
        stacks.append(spread_like(stack, W))
    inside = tuple(dataclasses.replace(s, path=s.path[2:]) for s in specs)
    return inside, tuple(stacks)


def _stack(W, rates, cutting, method, systems, place):
    kept = [cutting.kept(W.shape, rate) for rate in rates]
    whole = cutting.kept(W.shape, 0)
    needed = max((k for k in kept if k < whole), default=0)
    if not needed:
        return jnp.stack([W] * len(kept))
    # On a GPU the default precision would round the factors to TF32.
    with jax.default_matmul_precision("highest"):
        cut = _cutter(W, cutting, method, systems, place, needed)
        pairs = zip(rates, kept, strict=True)
        return jnp.stack(
            [W if k == whole else cut(r).astype(W.dtype) for r, k in pairs]
        )


def _cutter(W, cutting, method, systems, place, needed) -> Callable[[Any], jax.Array]:
    """Returns a function from a rate to the matrix, with one decomposition for all.

    Raises if a store gives fewer singular values than the ``needed`` ones.
    """

    def kept(rate):
        return cutting.kept(W.shape, rate)

    if not isinstance(method, str):
        return method.cutter(W, kept, place)
    wide = W.astype(jnp.promote_types(W.dtype, jnp.float32))
    if systems is None or method == "magnitude":
        cut = cutting.cutter(wide)
    else:
        parts = SVD(*(jnp.asarray(part) for part in systems.of(W)))
        if parts.s.size < needed:
            raise ValueError(
                f"systems: expected at least {needed} singular values of {place[1]} in "
                f"layer {place[0]}, got {parts.s.size}"
            )
        cut = cutting.spectral_cutter(wide, parts)
    return lambda rate: cut(kept(rate))
