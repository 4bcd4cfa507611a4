"""The matrices of a pruned module at every rate."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import checked, finite
from icltheory.bridge._arrays import gathered, spread_like
from icltheory.bridge._cutting import cutter_of
from icltheory.bridge.spectra import ClippingMethod
from icltheory.layered import MatrixSpec, get_matrix
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
        whole = checked(spec.name, whole, finite)
        place = (layer, spec.name)
        stack = _stack(whole, rates, cutting, method, systems, place)
        stacks.append(spread_like(stack, W))
    inside = tuple(dataclasses.replace(s, path=s.path[2:]) for s in specs)
    return inside, tuple(stacks)


def _stack(W, rates, cutting, method, systems, place):
    kept = [cutting.kept(W.shape, rate) for rate in rates]
    if isinstance(method, str):
        cut = cutter_of(W, cutting, systems, kept, *place)
        return jnp.stack([cut(size) for size in kept])
    full = cutting.kept(W.shape, 0)
    if min(kept) == full:
        return jnp.stack([W] * len(kept))
    # On a GPU the default precision would round the factors to TF32.
    with jax.default_matmul_precision("highest"):
        cut = method.cutter(W, lambda rate: cutting.kept(W.shape, rate), place)
        pairs = zip(rates, kept, strict=True)
        return jnp.stack(
            [W if k == full else cut(rate).astype(W.dtype) for rate, k in pairs]
        )
