"""Scores of a layered model over clipping rates, modules and layers.

The trunk below the pruned layer runs once, each matrix is decomposed once, and all
rates are one compiled program.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_positive_int, check_sequence, is_tracer, wrong
from icltheory._core import where_valid
from icltheory._typing import PyTree
from icltheory.batching import Progress, in_turns, reported
from icltheory.layered import (
    LayeredModel,
    check_layered,
    forward_from,
    get_matrix,
    hidden_before,
    replace_matrix,
)
from icltheory.pruning.methods import LowRank, Sized, check_method, kept_table
from icltheory.pruning.modules import module_matrices
from icltheory.pruning.rates import as_strengths


@dataclasses.dataclass(frozen=True, eq=False)
class Scored:
    """A layered model on some inputs, and the score of its outputs.

    Args:
        model: The layered model; for a model of one prompt and a batch of them,
            :class:`~icltheory.layered.Batched`.
        params: Its parameters.
        inputs: Its inputs.
        score: Function of the model's outputs and ``args``; returns an array or a
            pytree of arrays, such as one error for each prompt. Pass one function, not
            a new lambda each time, and arrays in ``args``: a program is compiled for
            each function.
        args: Further arguments of the score.
    """

    model: LayeredModel
    params: PyTree
    inputs: PyTree
    score: Callable[..., Any]
    args: tuple[Any, ...] = ()

    def __post_init__(self):
        if self.inputs is None:
            raise wrong("inputs", "the model's inputs", self.inputs)


def sweep(
    scored: Scored,
    layer: int,
    module: str,
    rates: Sequence[Any],
    *,
    method: Sized = LowRank(),
    batch_size: int | None = None,
) -> PyTree:
    r"""Scores ``(R, ...)`` of a model with one module of one layer pruned at each rate.

    .. math::
        s_j = \operatorname{score}\big(f_{\mathrm{out}} \circ f_{L-1} \circ \dots \circ
        f_{l+1} \circ f_l^{(\xi_j)} (x_l)\big) , \qquad
        x_l = f_{l-1} \circ \dots \circ f_0 (\mathrm{inputs}) .

    All matrices of the module are pruned at the same rate. A rate is a traced rank that
    masks the singular values, so that R rates at layer l cost one trunk, one
    decomposition per matrix and R (L - l) blocks. At rate 0 the weights are unchanged
    to the bit. Weights that are tied between layers are pruned in this layer only.

    The program is compiled once for each model, layer, module, method, score and
    shapes: as many other rates compile nothing.

    Args:
        module: See :func:`module_matrices`.
        rates: Clipping rates :math:`\xi_j`, each in [0, 1), or :class:`Rank`.
        method: :class:`LowRank`, :class:`Whitened` or :class:`Magnitude`.
        batch_size: Rates that run together, by ``vmap``. Unless given all of them on an
            accelerator, and one at a time on a CPU, where that is faster.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory import attention, layered
        >>> W = jnp.diag(jnp.array([2.0, 1.0]))[None]
        >>> stack = attention.LinearAttentionStack(W, W, W)
        >>> inputs = (jnp.ones((1, 2)), jnp.ones(2))
        >>> scored = Scored(layered.LayeredStack.of(stack), stack, inputs, jnp.sum)
        >>> sweep(scored, 0, "W_V", [0, 0.5]).tolist()
        [17.0, 12.0]

    Source: Yao et al. (2024), section 2 and Algorithm 1.
    """
    check_layered(scored.model)
    kept = _kept(scored, layer, [module], as_strengths(rates), method)
    return _scores(scored, layer, method, kept, scored.inputs, batch_size, True)


def sweep_grid(
    scored: Scored,
    layers: Sequence[int],
    modules: Sequence[str],
    rates: Sequence[Any],
    *,
    method: Sized = LowRank(),
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> PyTree:
    """Scores ``(layers, modules, R, ...)``: :func:`sweep` for every pair.

    The modules of a layer share the state that enters it, one decomposition of each
    matrix, and one compiled program in which a module is a row of ranks. ``progress``
    is called after each layer, see :mod:`icltheory.batching`.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory import attention, layered
        >>> stack = attention.LinearAttentionStack(*jnp.ones((3, 3, 2, 2)))
        >>> inputs = (jnp.ones((1, 2)), jnp.ones(2))
        >>> scored = Scored(layered.LayeredStack.of(stack), stack, inputs, jnp.sum)
        >>> sweep_grid(scored, [0, 2], ["W_V", "attn"], [0, 0.5]).shape
        (2, 2, 2)

    Source: Yao et al. (2024), Figures 1 and 2.
    """
    check_layered(scored.model)
    for name, several in (("layers", layers), ("modules", modules)):
        check_sequence(name, several)
        if not len(several):
            raise ValueError(f"{name}: expected at least one, got none")
    strengths = as_strengths(rates)
    kept = {
        layer: _kept(scored, layer, modules, strengths, method)
        for layer in sorted(set(layers))
    }
    model, params, rows, entered = scored.model, scored.params, {}, 0
    hidden = _embed(model, params, scored.inputs)
    for layer in reported(list(kept), progress, "layer {}".format):
        for index in range(entered, layer):
            hidden = _block(model, index, params, hidden)
        entered = layer
        rows[layer] = _scores(
            scored, layer, method, kept[layer], hidden, batch_size, False
        )
        if progress is not None:
            jax.block_until_ready(rows[layer])
    shape = (len(layers), len(modules), len(strengths))

    def arrange(*by_layer):
        return jnp.stack(by_layer).reshape(shape + by_layer[0].shape[1:])

    return jax.tree.map(arrange, *(rows[layer] for layer in layers))


def _kept(
    scored: Scored,
    layer: int,
    modules: Sequence[str],
    strengths: Sequence[Any],
    method: Sized,
) -> tuple[tuple[str, ...], np.ndarray]:
    """Names of the matrices, and what each module and strength (rows) keeps of each."""
    check_method(method, Sized)
    model, params = scored.model, scored.params
    chosen = [module_matrices(model, layer, module) for module in modules]
    specs = [s for s in model.matrices(layer) if any(s in part for part in chosen)]
    for part in chosen:  # raises for a rank that changes no matrix of a module
        kept_table(method, params, part, strengths)
    pruned = kept_table(method, params, specs, strengths)
    whole = kept_table(method, params, specs, [0])[0]
    kept = [
        [k if s in part else w for s, k, w in zip(specs, row, whole, strict=True)]
        for part in chosen
        for row in pruned
    ]
    return tuple(spec.name for spec in specs), np.asarray(kept, np.int32)


class Program(NamedTuple):
    """The static arguments of a compiled sweep of one layer."""

    model: LayeredModel
    layer: int
    score: Callable[..., Any]
    method: Sized
    names: tuple[str, ...]
    embed: bool
    together: int


def _scores(
    scored: Scored,
    layer: int,
    method: Sized,
    kept: tuple[tuple[str, ...], np.ndarray],
    start: PyTree,
    batch_size: int | None,
    embed: bool,
) -> PyTree:
    """Scores of every row of ranks, from inputs (``embed``) or the layer's state."""
    names, sizes = kept
    if batch_size is None:
        batch_size = 1 if jax.default_backend() == "cpu" else len(sizes)
    check_positive_int("batch_size", batch_size)
    together = min(batch_size, len(sizes))
    # The rule of rounding is no part of the program, which takes ranks.
    rule = dataclasses.replace(method, rule="floor", at_least_one=False)
    program = Program(scored.model, layer, scored.score, rule, names, embed, together)
    scores, finite = _run(program, scored.params, start, sizes, scored.args)
    if not jax.tree.leaves(scores):
        raise ValueError("score: expected a function that returns numbers, got None")
    if is_tracer(finite):
        return where_valid(scores, jnp.all(finite))
    for name, ok in zip(names, np.asarray(finite), strict=True):
        if not ok:
            raise ValueError(f"{name}: expected finite entries, got NaN or infinity")
    return scores


@functools.partial(jax.jit, static_argnums=0)
def _run(program, params, start, kept, score_args):
    model, layer = program.model, program.layer
    hidden = hidden_before(model, params, start, layer) if program.embed else start
    specs = [spec for spec in model.matrices(layer) if spec.name in program.names]
    matrices = [get_matrix(params, spec) for spec in specs]
    cutters = [program.method.by_size(W) for W in matrices]

    def at(sizes):
        pruned = params
        for spec, cut, size in zip(specs, cutters, sizes, strict=True):
            pruned = replace_matrix(pruned, spec, cut(size))
        # Only this block uses the pruned weights. The others use the original
        # parameters, so that a leaf with all layers is not copied for every rate.
        after = model.block(layer, pruned, hidden)
        outputs = forward_from(model, params, after, layer + 1)
        return program.score(outputs, *score_args)

    finite = jnp.stack([jnp.isfinite(W).all() for W in matrices])
    return in_turns(at, kept, program.together), finite


@functools.partial(jax.jit, static_argnums=0)
def _embed(model, params, inputs):
    return model.embed(params, inputs)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _block(model, layer, params, hidden):
    return model.block(layer, params, hidden)
