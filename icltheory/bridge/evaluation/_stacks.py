"""The matrices of a pruned module at every rate."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import checked, finite
from icltheory.bridge._arrays import gathered, spread_like
from icltheory.bridge._cutting import cutter_of
from icltheory.layered import MatrixSpec, get_matrix
from icltheory.pruning import Method, module_matrices
from icltheory.pruning.methods import kept_table


def pruned_stacks(
    model: Any,
    layer: int,
    module: str,
    rates: Sequence[Any],
    method: Method,
    systems: Any,
) -> tuple[tuple[MatrixSpec, ...], tuple[jax.Array, ...]]:
    """Returns paths within the layer, each with its matrices stacked over rates."""
    specs = module_matrices(model, layer, module)
    kept_table(method, model.params, specs, rates)
    stacks = []
    for number, spec in enumerate(specs):
        W = get_matrix(model.params, spec)
        whole = checked(spec.name, gathered(W, number), finite)
        # On a GPU the default precision would round the factors to TF32.
        with jax.default_matmul_precision("highest"):
            cut = cutter_of(whole, method, systems, rates, (layer, spec.name))
            stack = jnp.stack([cut(rate) for rate in rates])
        stacks.append(spread_like(stack, W))
    inside = tuple(dataclasses.replace(s, path=s.path[2:]) for s in specs)
    return inside, tuple(stacks)
