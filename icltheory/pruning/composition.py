"""Greedy search for pruning several modules together."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_shape
from icltheory._names import PruningMethod, Rule
from icltheory._pytree import pytree, static_field
from icltheory._typing import PyTree
from icltheory.batching import Progress, reported
from icltheory.layered import LayeredModel
from icltheory.pruning._program import CachedLayers, Program, evaluate
from icltheory.pruning.choice import choose_rate
from icltheory.pruning.modules import Cutting, module_matrices, prune_module

__all__ = ["Composition", "compose"]


@pytree
class Composition:
    """Result of a greedy search over several modules.

    Args:
        params: The pruned parameters.
        rates: Rate kept for each pair, 0 where nothing improved, ``(P,)``.
        scores: Score before the first pair and after each, ``(P + 1,)``; it never gets
            worse. Every entry after the first was measured when its pair was visited.
        pairs: The (layer, module) pairs in the order of the visit.

    Source: Yao et al. (2024), Algorithm 1.
    """

    params: PyTree
    rates: np.ndarray
    scores: np.ndarray
    pairs: tuple[tuple[int, str], ...] = static_field()


def compose(
    model: LayeredModel,
    pairs: Sequence[tuple[int, str]],
    rates: Sequence[Any],
    score: Callable[..., Any],
    *,
    params: PyTree,
    inputs: PyTree,
    score_args: tuple[Any, ...] = (),
    maximize: bool = True,
    min_gain: float | int = 0.0,
    rule: Rule = "floor",
    at_least_one: bool = False,
    method: PruningMethod = "svd",
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Composition:
    """Prunes modules one after the other, each at the best rate given earlier ones.

    Each pair is swept with the prunings kept so far in place, beside the rate 0 in the
    same program, and judged by :func:`~icltheory.pruning.choose_rate` against that rate
    0: strictly better by more than ``min_gain``, ties to the smaller rate. If nothing
    is better the parameters stay the same arrays. Only the module that wins
    is replaced, so nothing of a rejected trial remains.

    The search is greedy: another order may end elsewhere. From the shallowest layer to
    the deepest it costs least, one pass through the blocks; each step back starts one
    anew. The final score was chosen on these inputs; measure it on others.

    Args:
        model: The layered model.
        pairs: (layer, module) in the order of the visit; see
            :func:`~icltheory.pruning.sweep` for the names.
        rates: Clipping rates tried at every pair, each in [0, 1).
        score: Function of the model's outputs and ``score_args`` to one number.
        params: Parameters of the model; left as they are.
        inputs: Inputs of the model.
        score_args: Further arguments of ``score``, any pytrees of arrays.
        maximize: Whether a large score is good; for errors say ``False``.
        min_gain: Improvement that has to be exceeded, at least 0.
        rule: How a rate becomes a rank: ``"floor"``, ``"nearest"`` or ``"ceil"``.
        at_least_one: Whether a rank that rounds to 0 becomes 1 instead of an error.
        method: ``"svd"``, ``"magnitude"`` or ``"whitened"``.
        batch_size: Rates that run side by side, see :func:`~icltheory.pruning.sweep`.
        progress: Called as ``progress(done, total, part)`` after each pair; see
            :mod:`icltheory.batching`.

    Returns:
        The parameters, the rate of each pair, and the scores along the way.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory.attention import LinearAttentionStack
        >>> from icltheory.layered import LayeredStack
        >>> W = jnp.diag(jnp.array([2.0, 1.0]))[None]
        >>> stack = LinearAttentionStack(W, W, W)
        >>> inputs = (jnp.ones((1, 2)), jnp.ones(2))
        >>> found = compose(LayeredStack.of(stack), [(0, "W_V"), (0, "W_K")], [0.5],
        ...                 jnp.sum, params=stack, inputs=inputs, maximize=False)
        >>> found.rates.tolist(), found.scores.round(6).tolist()
        ([0.5, 0.5], [17.0, 12.0, 10.0])

    Source: Yao et al. (2024), Algorithm 1, which prunes one layer.
    """
    if not len(pairs):
        raise ValueError("pairs: expected at least one (layer, module), got none")
    if not len(rates):
        raise ValueError("rates: expected at least one rate, got none")
    cutting, trunk = Cutting(method, rule, at_least_one), CachedLayers(model, inputs)
    chosen, path = [], []
    for layer, module in reported(pairs, progress, _named):
        specs = module_matrices(model, layer, module)
        names = tuple(spec.name for spec in specs)
        scores = evaluate(
            Program(model, layer, names, score, method),
            params,
            trunk.before(params, layer),
            cutting.kept_table(params, specs, [0, *rates]),
            score_args,
            batch_size=batch_size,
        )
        check_shape("score", jnp.asarray(scores)[0], ())
        values = np.asarray(scores, np.float64)
        choice = choose_rate(
            values[1:], rates, values[0], maximize=maximize, min_gain=min_gain
        )
        if choice.index is not None:
            params = _pruned(cutting, model, params, layer, module, choice.rate)
        path += [values[0]] if not path else []
        path.append(choice.score)
        chosen.append(choice.rate)
    visited = tuple((int(layer), module) for layer, module in pairs)
    return Composition(params, np.array(chosen), np.array(path), visited)


def _named(pair):
    return "layer {}, {}".format(*pair)


def _pruned(cutting, model, params, layer, module, rate):
    options = {"rule": cutting.rule, "at_least_one": cutting.at_least_one}
    return prune_module(
        model, params, layer, module, rate, method=cutting.method, **options
    )
