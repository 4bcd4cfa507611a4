"""Scores of a layered model over clipping rates, modules and layers.

The trunk below the pruned layer runs once, each matrix is decomposed once, and all
rates are one compiled program.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_positive_int, check_sequence, is_tracer
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
from icltheory.pruning.rates import as_strengths, check_one_of

__all__ = ["sweep", "sweep_grid"]


def sweep(
    model: LayeredModel,
    layer: int,
    module: str,
    rates: Sequence[Any],
    score: Callable[..., Any],
    *,
    params: PyTree,
    inputs: PyTree = None,
    hidden: PyTree = None,
    score_args: tuple[Any, ...] = (),
    method: Sized = LowRank(),
    batch_size: int | None = None,
) -> PyTree:
    r"""Scores ``(R, ...)`` of a model with one module of one layer pruned at each rate.

    .. math::
        s_j = \operatorname{score}\big(f_{\mathrm{out}} \circ f_{L-1} \circ \dots \circ
        f_{l+1} \circ f_l^{(\xi_j)} (x_l)\big) , \qquad
        x_l = f_{l-1} \circ \dots \circ f_0 (\mathrm{inputs}) .

    All matrices of the module are pruned at the same rate. The state :math:`x_l` is
    computed once from ``inputs``, or taken as ``hidden``; a rate is a traced rank that
    masks the singular values, so that R rates at layer l cost one trunk, one
    decomposition a matrix and R (L - l) blocks. At rate 0 the weights are unchanged to
    the bit.

    The program is compiled once for each model, layer, module, method, ``score`` and
    shapes: other rates, as many, compile nothing. Pass one function as ``score``, not a
    new lambda each time, and hand over arrays in ``score_args``. Weights that are tied
    between layers are pruned in this layer only.

    Args:
        model: The layered model; for a model of one prompt and a batch of them,
            :class:`~icltheory.layered.Batched`.
        module: See :func:`module_matrices`.
        rates: Clipping rates :math:`\xi_j`, each in [0, 1), among which may be a
            :class:`Rank`.
        score: Function of the model's outputs and ``score_args``; returns an array or
            a pytree of arrays, such as one error for each prompt.
        method: :class:`LowRank`, :class:`Whitened` or :class:`Magnitude`.
        batch_size: Rates that run side by side, by ``vmap``. Left out, all of them on
            an accelerator, and one after the other on a CPU, where that is faster.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory import attention, layered
        >>> W = jnp.diag(jnp.array([2.0, 1.0]))[None]
        >>> stack = attention.LinearAttentionStack(W, W, W)
        >>> sweep(layered.LayeredStack.of(stack), 0, "W_V", [0, 0.5], jnp.sum,
        ...       params=stack, inputs=(jnp.ones((1, 2)), jnp.ones(2))).tolist()
        [17.0, 12.0]

    Source: Yao et al. (2024), section 2 and Algorithm 1.
    """
    check_one_of(inputs=inputs, hidden=hidden)
    check_layered(model)
    return _scores(
        Program(model, layer, score, method),
        [module],
        as_strengths(rates),
        params,
        lambda: hidden if inputs is None else inputs,
        score_args,
        batch_size,
        embed=inputs is not None,
    )


def sweep_grid(
    model: LayeredModel,
    layers: Sequence[int],
    modules: Sequence[str],
    rates: Sequence[Any],
    score: Callable[..., Any],
    *,
    params: PyTree,
    inputs: PyTree,
    score_args: tuple[Any, ...] = (),
    method: Sized = LowRank(),
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> PyTree:
    """Scores over layers, modules and rates: :func:`sweep` for every pair.

    The modules of a layer share the state that enters it, one decomposition of each
    matrix, and one compiled program in which a module is a row of ranks. ``progress``
    is called after each layer, see :mod:`icltheory.batching`; the other arguments are
    those of :func:`sweep`. Scores have shape (layers, modules, R, ...).

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory import attention, layered
        >>> stack = attention.LinearAttentionStack(*jnp.ones((3, 3, 2, 2)))
        >>> inputs = (jnp.ones((1, 2)), jnp.ones(2))
        >>> sweep_grid(layered.LayeredStack.of(stack), [0, 2], ["W_V", "attn"],
        ...            [0, 0.5], jnp.sum, params=stack, inputs=inputs).shape
        (2, 2, 2)

    Source: Yao et al. (2024), Figures 1 and 2.
    """
    check_layered(model)
    for name, several in (("layers", layers), ("modules", modules)):
        check_sequence(name, several)
        if not len(several):
            raise ValueError(f"{name}: expected at least one, got none")
    strengths, rows = as_strengths(rates), {}
    trunk = CachedLayers(model, inputs)
    for layer in reported(sorted(set(layers)), progress, "layer {}".format):
        rows[layer] = _scores(
            Program(model, layer, score, method),
            modules,
            strengths,
            params,
            functools.partial(trunk.before, params, layer),
            score_args,
            batch_size,
        )
        if progress is not None:
            jax.block_until_ready(rows[layer])
    shape = (len(layers), len(modules), len(strengths))

    def arrange(*by_layer):
        return jnp.stack(by_layer).reshape(shape + by_layer[0].shape[1:])

    return jax.tree.map(arrange, *(rows[layer] for layer in layers))


class Program(NamedTuple):
    """The static arguments of a compiled sweep of one layer."""

    model: LayeredModel
    layer: int
    score: Callable[..., Any]
    method: Sized


def _scores(
    program, modules, strengths, params, start, score_args, batch_size, embed=False
):
    """Scores of every module at every strength, from the state that start() gives."""
    model, layer, _, method = program
    check_method(method, Sized)
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
    if batch_size is None:
        batch_size = 1 if jax.default_backend() == "cpu" else len(kept)
    check_positive_int("batch_size", batch_size)
    # The rule of rounding is no part of the program, which takes ranks.
    program = program._replace(method=type(method)())
    names = tuple(spec.name for spec in specs)
    sizes, together = np.asarray(kept, np.int32), min(batch_size, len(kept))
    scores, finite = _run(
        program, names, embed, together, params, start(), sizes, score_args
    )
    if not jax.tree.leaves(scores):
        raise ValueError("score: expected a function that returns numbers, got None")
    if is_tracer(finite):
        return where_valid(scores, jnp.all(finite))
    for name, ok in zip(names, np.asarray(finite), strict=True):
        if not ok:
            raise ValueError(f"{name}: expected finite entries, got NaN or infinity")
    return scores


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _run(program, names, embed, together, params, start, kept, score_args):
    model, layer, score, method = program
    hidden = hidden_before(model, params, start, layer) if embed else start
    specs = [spec for spec in model.matrices(layer) if spec.name in names]
    matrices = [get_matrix(params, spec) for spec in specs]
    cutters = [method.by_size(W) for W in matrices]

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
    """Holds the hidden state below a layer, advanced by one program for each block."""

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
