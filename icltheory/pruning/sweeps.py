"""Scores of a layered model over clipping rates, modules and layers.

The trunk below the pruned layer runs once, each matrix is decomposed once, and all
rates are one compiled program.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import check_sequence
from icltheory._names import PruningMethod, Rule
from icltheory._typing import PyTree
from icltheory.batching import Progress, reported
from icltheory.layered import LayeredModel, check_layered
from icltheory.pruning._program import CachedLayers, Program, evaluate
from icltheory.pruning.modules import Cutting, module_matrices
from icltheory.pruning.rates import check_one_of, strengths_of

__all__ = ["sweep", "sweep_grid"]


def sweep(
    model: LayeredModel,
    layer: int,
    module: str,
    rates: Sequence[Any] | None,
    score: Callable[..., Any],
    *,
    params: PyTree,
    ranks: Sequence[int] | None = None,
    inputs: PyTree = None,
    hidden: PyTree = None,
    score_args: tuple[Any, ...] = (),
    rule: Rule = "floor",
    at_least_one: bool = False,
    method: PruningMethod = "svd",
    batch_size: int | None = None,
) -> PyTree:
    r"""Scores of a model with one module of one layer pruned at each rate.

    .. math::
        s_j = \operatorname{score}\big(f_{\mathrm{out}} \circ f_{L-1} \circ \dots \circ
        f_{l+1} \circ f_l^{(\xi_j)} (x_l)\big) , \qquad
        x_l = f_{l-1} \circ \dots \circ f_0 (\mathrm{inputs}) .

    All matrices of the module are pruned at the same rate. The state :math:`x_l` is
    computed once, or taken as ``hidden``; a rate is a traced rank that masks the
    singular values, so that R rates at layer l cost one trunk, one decomposition a
    matrix and R (L - l) blocks. At rate 0 the weights are unchanged to the bit.

    The program is compiled once for each model, layer, module, method, ``score`` and
    shapes: other rates, as many, compile nothing. ``score`` is part of its identity, so
    pass one function, not a new lambda each time, and hand over arrays in
    ``score_args``. A pruned matrix is the layer's own: weights that are tied between
    layers are pruned in this layer only.

    Args:
        model: The layered model; for a model of one prompt and a batch of them,
            :class:`~icltheory.layered.Batched`.
        layer: Number l of the layer, from 0.
        module: One matrix, such as ``"W_V"``, or ``"attn"``, ``"mlp"``, ``"all"``.
        rates: Clipping rates :math:`\xi_j`, each in [0, 1); ``None`` with ``ranks``.
        score: Function of the model's outputs and ``score_args``; returns an array or
            a pytree of arrays, such as one error for each prompt.
        params: Parameters of the model.
        ranks: Largest ranks that are left, in place of rates; see
            :class:`~icltheory.pruning.Rank`.
        inputs: Inputs of the model; this or ``hidden``.
        hidden: State that enters block l; this or ``inputs``.
        score_args: Further arguments of ``score``, any pytrees of arrays.
        rule: How a rate becomes a rank: ``"floor"``, ``"nearest"`` or ``"ceil"``.
        at_least_one: Whether a rank that rounds to 0 becomes 1 instead of an error.
        method: ``"svd"``, ``"magnitude"`` or ``"whitened"``.
        batch_size: Rates that run side by side, by ``vmap``. Left out, all of them on
            an accelerator, and one after the other on a CPU, where that is faster.

    Returns:
        The scores, ``(R, ...)`` with the shape of what ``score`` returns behind.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory.attention import LinearAttentionStack
        >>> from icltheory.layered import LayeredStack
        >>> W = jnp.diag(jnp.array([2.0, 1.0]))[None]
        >>> stack = LinearAttentionStack(W, W, W)
        >>> sweep(LayeredStack.of(stack), 0, "W_V", [0, 0.5], jnp.sum,
        ...       params=stack, inputs=(jnp.ones((1, 2)), jnp.ones(2))).tolist()
        [17.0, 12.0]

    Source: Yao et al. (2024), section 2 and Algorithm 1.
    """
    check_one_of(inputs=inputs, hidden=hidden)
    check_layered(model)
    strengths = strengths_of(rates, ranks)
    specs = module_matrices(model, layer, module)
    cutting = Cutting(method, rule, at_least_one)
    return evaluate(
        Program(model, layer, tuple(spec.name for spec in specs), score, method),
        params,
        hidden if inputs is None else inputs,
        cutting.kept_table(params, specs, strengths),
        score_args,
        embed=inputs is not None,
        batch_size=batch_size,
    )


def sweep_grid(
    model: LayeredModel,
    layers: Sequence[int],
    modules: Sequence[str],
    rates: Sequence[Any] | None,
    score: Callable[..., Any],
    *,
    params: PyTree,
    inputs: PyTree,
    ranks: Sequence[int] | None = None,
    score_args: tuple[Any, ...] = (),
    rule: Rule = "floor",
    at_least_one: bool = False,
    method: PruningMethod = "svd",
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> PyTree:
    """Scores over layers, modules and rates: :func:`sweep` for every pair.

    The trunk advances layer by layer through the layers asked for, and the modules of a
    layer share its state, one decomposition of each matrix, and one compiled program in
    which a module is a row of ranks.

    Args:
        model: The layered model.
        layers: Numbers of the layers, from 0, in any order.
        modules: Matrices or groups, see :func:`sweep`.
        rates: Clipping rates, each in [0, 1); ``None`` with ``ranks``.
        score: Function of the model's outputs and ``score_args``.
        params: Parameters of the model.
        inputs: Inputs of the model.
        ranks: Largest ranks that are left, in place of rates.
        score_args: Further arguments of ``score``, any pytrees of arrays.
        rule: How a rate becomes a rank: ``"floor"``, ``"nearest"`` or ``"ceil"``.
        at_least_one: Whether a rank that rounds to 0 becomes 1 instead of an error.
        method: ``"svd"``, ``"magnitude"`` or ``"whitened"``.
        batch_size: Rates that run side by side, see :func:`sweep`.
        progress: Called as ``progress(done, total, part)`` after each layer; see
            :mod:`icltheory.batching`.

    Returns:
        The scores, ``(len(layers), len(modules), R, ...)``.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory.attention import LinearAttentionStack
        >>> from icltheory.layered import LayeredStack
        >>> W = jnp.stack([jnp.diag(jnp.array([2.0, 1.0]))] * 3)
        >>> stack = LinearAttentionStack(W, W, W)
        >>> inputs = (jnp.ones((1, 2)), jnp.ones(2))
        >>> sweep_grid(LayeredStack.of(stack), [0, 2], ["W_V", "attn"], [0, 0.5],
        ...            jnp.sum, params=stack, inputs=inputs).shape
        (2, 2, 2)

    Source: Yao et al. (2024), Figures 1 and 2.
    """
    check_layered(model)
    for name, several in (("layers", layers), ("modules", modules)):
        check_sequence(name, several)
    strengths = strengths_of(rates, ranks)
    if not len(layers) or not len(modules):
        which = "modules" if len(layers) else "layers"
        raise ValueError(f"{which}: expected at least one, got none")
    cutting, trunk = Cutting(method, rule, at_least_one), CachedLayers(model, inputs)
    rows = {}
    for layer in reported(sorted(set(layers)), progress, "layer {}".format):
        specs, kept = _table_of_modules(
            cutting, model, params, layer, modules, strengths
        )
        names = tuple(spec.name for spec in specs)
        rows[layer] = evaluate(
            Program(model, layer, names, score, method),
            params,
            trunk.before(params, layer),
            kept,
            score_args,
            batch_size=batch_size,
        )
        if progress is not None:
            jax.block_until_ready(rows[layer])
    shape = (len(layers), len(modules), len(strengths))

    def arrange(*by_layer):
        return jnp.stack(by_layer).reshape(shape + by_layer[0].shape[1:])

    return jax.tree.map(arrange, *(rows[layer] for layer in layers))


def _table_of_modules(cutting, model, params, layer, modules, strengths):
    """Returns all matrices of the modules, and rows of sizes by module and strength."""
    chosen = [module_matrices(model, layer, module) for module in modules]
    specs = [s for s in model.matrices(layer) if any(s in part for part in chosen)]
    for part in chosen:  # raises for a rank that changes no matrix of a module
        cutting.kept_table(params, part, strengths)
    pruned = cutting.kept_table(params, specs, strengths)
    whole = cutting.kept_table(params, specs, [0])[0]
    rows = [
        [k if s in part else w for s, k, w in zip(specs, row, whole, strict=True)]
        for part in chosen
        for row in pruned
    ]
    return specs, rows
