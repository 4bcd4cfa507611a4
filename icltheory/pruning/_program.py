"""The compiled program of all sweeps, and the cache of lower layers."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_positive_int, concrete
from icltheory._typing import PyTree
from icltheory.batching import in_turns
from icltheory.layered import (
    LayeredModel,
    check_layered,
    forward_from,
    get_matrix,
    hidden_before,
    replace_matrix,
)
from icltheory.pruning.modules import Cutting


class Program(NamedTuple):
    """The static arguments of a compiled sweep."""

    model: LayeredModel
    layer: int
    names: tuple[str, ...]
    score: Callable[..., Any]
    method: str


def evaluate(
    program: Program,
    params: PyTree,
    start: PyTree,
    kept: Sequence[Sequence[int]],
    score_args: tuple[Any, ...],
    *,
    embed: bool = False,
    batch_size: int | None = None,
) -> PyTree:
    """Scores every row of ``kept``, which has one column for each matrix."""
    check_layered(program.model)
    if batch_size is None:
        batch_size = 1 if jax.default_backend() == "cpu" else len(kept)
    check_positive_int("batch_size", batch_size)
    sizes = np.asarray(kept, np.int32)
    together = min(batch_size, len(kept))
    scores, finite = _run(program, embed, together, params, start, sizes, score_args)
    known = concrete(finite)
    for name, ok in zip(program.names, () if known is None else known, strict=False):
        if not ok:
            raise ValueError(f"{name}: expected finite entries, got NaN or infinity")
    if not jax.tree.leaves(scores):
        raise ValueError("score: expected a function that returns numbers, got None")
    return scores


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _run(program, embed, together, params, start, kept, score_args):
    model, layer, names, score, method = program
    hidden = hidden_before(model, params, start, layer) if embed else start
    specs = [spec for spec in model.matrices(layer) if spec.name in names]
    matrices = [get_matrix(params, spec) for spec in specs]
    cutting = Cutting(method, "floor", False)
    cutters = [cutting.cutter(W) for W in matrices]

    def at(sizes):
        pruned = params
        for spec, cut, size in zip(specs, cutters, sizes, strict=True):
            pruned = replace_matrix(pruned, spec, cut(size))
        # Only this block uses the pruned weights. The others use the original
        # parameters, so that a leaf with all layers is not copied for every rate.
        after = model.block(layer, pruned, hidden)
        return score(forward_from(model, params, after, layer + 1), *score_args)

    finite = jnp.stack([jnp.isfinite(W).all() for W in matrices])
    return in_turns(at, kept, together), finite


class CachedLayers:
    """Cache of the hidden state below a layer, advanced block by block.

    One state is held. Every block is a program of its own, compiled once.
    """

    def __init__(self, model: LayeredModel, inputs: PyTree):
        self.model, self.inputs = model, inputs
        self._held: tuple[int, PyTree] | None = None

    def before(self, params: PyTree, layer: int) -> PyTree:
        """Returns the hidden state that enters ``layer``."""
        if self._held is None or self._held[0] > layer:
            self._held = 0, _embed(self.model, params, self.inputs)
        start, state = self._held
        for index in range(start, layer):
            state = _block(self.model, index, params, state)
        self._held = layer, state
        return state


@functools.partial(jax.jit, static_argnums=0)
def _embed(model, params, inputs):
    return model.embed(params, inputs)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _block(model, layer, params, hidden):
    return model.block(layer, params, hidden)
