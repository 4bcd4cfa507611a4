"""The matrices of a module at every rate."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import check_finite
from icltheory.layered import MatrixSpec, get_matrix
from icltheory.linalg import SVD
from icltheory.pruning import module_matrices
from icltheory.pruning.modules import Cutting


def pruned_stacks(
    model: Any,
    layer: int,
    module: str,
    rates: Sequence[Any],
    method: str,
    at_least_one: bool,
    systems: Any,
) -> tuple[tuple[MatrixSpec, ...], tuple[jax.Array, ...]]:
    """Paths within the layer, and for each a stack over the rates."""
    cutting = Cutting(method, "floor", at_least_one)
    specs = module_matrices(model, layer, module)
    stacks = []
    for spec in specs:
        W = get_matrix(model.params, spec)
        check_finite(spec.name, W)
        stacks.append(_stack(W, rates, cutting, systems))
    inside = tuple(MatrixSpec(s.name, s.group, s.path[2:]) for s in specs)
    return inside, tuple(stacks)


def _stack(W, rates, cutting, systems):
    kept = [cutting.kept(W.shape, rate) for rate in rates]
    whole = cutting.kept(W.shape, 0)
    if min(kept) == whole:
        return jnp.stack([W] * len(kept))
    # On a GPU the default would round the factors to TF32.
    with jax.default_matmul_precision("highest"):
        cut = _cutter(W, cutting, systems)
        return jnp.stack([W if k == whole else cut(k).astype(W.dtype) for k in kept])


def _cutter(W, cutting, systems):
    if systems is None or cutting.method != "svd":
        return cutting.cutter(W.astype(jnp.promote_types(W.dtype, jnp.float32)))
    return SVD(*(jnp.asarray(part) for part in systems.of(W))).truncate
