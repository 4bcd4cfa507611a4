"""Evaluation with the shared prefix computed once and questions in batches."""

from collections.abc import Mapping, Sequence
from typing import Any

from icltheory.batching import Progress
from icltheory.bridge.evaluation._run import SplitEvaluator
from icltheory.bridge.evaluation.grid import Grid
from icltheory.bridge.evaluation.prompts import tokenize
from icltheory.bridge.evaluation.result import Evaluation
from icltheory.bridge.tasks import LanguageTask

__all__ = ["evaluate", "evaluate_grid", "evaluate_rates"]


def evaluate(
    model: Any,
    task: LanguageTask,
    split: str = "validation",
    shots: int | None = None,
    *,
    batch_size: int = 32,
    buckets: int = 3,
    padding: str = "right",
    packed: bool = True,
    progress: Progress | None = None,
) -> Evaluation:
    r"""Evaluates a model on every example of a split.

    With label tokens the score of label k is its logit behind the prompt. Other
    scorings begin with the log-likelihood of option k,

    .. math:: \log p(o_k \mid \text{prompt}) = \sum_{t} \log p(o_{k,t} \mid
        \text{prompt}, o_{k, <t})

    over its tokens, which :data:`icltheory.bridge.tasks.SCORINGS` divides by a length
    or combines with that behind reference prompts. With the mean logit the score is the
    mean of all logits over the whole vocabulary at all tokens of prompt and option.

    Args:
        model: The model.
        task: The task.
        split: ``"demonstrations"``, ``"validation"`` or ``"test"``.
        shots: Demonstrations in front; all if ``None``.
        batch_size: Most examples that run together, about so many if packed.
        buckets: Most lengths to which questions are padded if not packed; each
            compiles.
        padding: ``"right"`` or ``"left"``, to which side.
        packed: Whether rows of one length hold several questions, each with its
            options behind it, so that one program serves all.
        progress: Called as ``progress(done, total, part)`` after each batch, with
            numbers of examples; see :mod:`icltheory.batching`.

    Returns:
        The evaluation.

    Source: Yao et al. (2024), section 4.
    """
    prompts = tokenize(model, task, split, shots)
    run = SplitEvaluator(model, prompts, batch_size, buckets, padding, packed)
    run.add("model", 0)
    return run.evaluations(progress)["model"][0]


def evaluate_rates(
    model: Any,
    task: LanguageTask,
    layer: int,
    module: str,
    rates: Sequence[Any],
    split: str = "validation",
    shots: int | None = None,
    *,
    progress: Progress | None = None,
    **options: Any,
) -> tuple[Evaluation, ...]:
    """Evaluates a split with one module pruned at several rates.

    Args:
        model: The model.
        task: The task.
        layer: Number of the layer, from 0.
        module: One matrix, such as ``"W_Q"``, or ``"attn"``, ``"mlp"``, ``"all"``.
        rates: Clipping rates, in [0, 1), among which may be a
            :class:`~icltheory.pruning.Rank`.
        split: ``"demonstrations"``, ``"validation"`` or ``"test"``.
        shots: Demonstrations in front; all if ``None``.
        progress: As of :func:`evaluate`.
        **options: Further ones of :class:`~icltheory.bridge.evaluation.Grid`.

    Returns:
        One evaluation a rate or rank.

    Source: Yao et al. (2024), Algorithm 1.
    """
    grid = Grid(model, task, [layer], [module], rates, split, shots, **options)
    return grid.evaluations(progress)[layer, module]


def evaluate_grid(
    model: Any,
    task: LanguageTask,
    layers: Sequence[int],
    modules: Sequence[str],
    rates: Sequence[Any],
    split: str = "validation",
    shots: int | None = None,
    *,
    progress: Progress | None = None,
    **options: Any,
) -> Mapping[tuple[int, str], tuple[Evaluation, ...]]:
    """Evaluates a split for every (layer, module, rate) in one pass.

    Args:
        model: The model.
        task: The task.
        layers: Numbers of the layers, from 0.
        modules: Modules that are pruned, one at a time.
        rates: Clipping rates, in [0, 1), among which may be a
            :class:`~icltheory.pruning.Rank`.
        split: ``"demonstrations"``, ``"validation"`` or ``"test"``.
        shots: Demonstrations in front; all if ``None``.
        progress: As of :func:`evaluate`.
        **options: Further ones of :class:`~icltheory.bridge.evaluation.Grid`.

    Returns:
        One evaluation a rate or rank for each (layer, module).

    Source: Yao et al. (2024), Algorithm 1 and Figures 1 and 2.
    """
    grid = Grid(model, task, layers, modules, rates, split, shots, **options)
    return grid.evaluations(progress)
