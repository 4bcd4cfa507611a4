"""Algorithm 1 on a language model: it chooses a layer and a rate, and tests once.

A rank may stand in the place of a rate.
"""

import os
from collections.abc import Sequence
from typing import Any

from icltheory._checks import check_nonnegative_int, check_open_unit
from icltheory.batching import Progress
from icltheory.bridge._search import Algorithm1Result, conduct
from icltheory.bridge.answer_cache import AnswerCache, facts_of
from icltheory.bridge.answer_file import AnswerFile
from icltheory.bridge.cached_evaluator import CachedEvaluator, method_name
from icltheory.bridge.evaluation.result import denominator_of
from icltheory.bridge.model import check_weights, weights_digest
from icltheory.bridge.spectra import (
    ConditionNumber,
    SingularSystems,
    condition_numbers,
)
from icltheory.bridge.tasks import LanguageTask
from icltheory.bridge.tasks.lint import Finding, check_overlap, enforce, gather
from icltheory.layered.matrices import in_module
from icltheory.pruning import LayerChoice, LowRank, Rank, choose_layers
from icltheory.pruning.rates import as_strengths

__all__ = ["Algorithm1Result", "algorithm1", "layer_choice", "read_algorithm1"]


def algorithm1(
    model: Any,
    task: LanguageTask,
    module: str,
    rates: Sequence[Any],
    top_k: int,
    aggregate: str,
    *,
    shots: int | None = None,
    answers: AnswerFile | AnswerCache | str | os.PathLike | None = None,
    cache: SingularSystems | None = None,
    seed: int = 0,
    level: float = 0.95,
    layer: int | None = None,
    conditions: Sequence[ConditionNumber] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Algorithm1Result:
    r"""Chooses a layer by condition numbers and a rate by validation; tests it once.

    .. math::
        l^* = \max \operatorname{top}_k \big( \operatorname{agg}_m \kappa(W_{l,m}) \big)
        , \qquad
        \xi^* = \arg\max_{\xi} a_{\mathrm{val}}(l^*, \xi)

    if that exceeds the unpruned score, otherwise 0; ties go to the smaller rate, and of
    ranks among the rates to the larger one. As printed the
    algorithm starts from 0 instead, and prunes also where every rate does harm. The
    winner of a search looks better than it is, so both models then answer the same test
    examples, once, and an exact paired test says whether their difference could be
    chance. No test example takes part in a choice.

    In the profile ``"authors_code"`` ties of label tokens (all tasks but COPA) count as
    wrong, and accuracies are divided as the scripts do. Their layers are given by
    ``layer`` (26 and 27 of GPT-J, 30 of LLaMA 2). Their search is had by
    ``method=Cumulative(rates)``: a randomised approximation of what the rate before
    left, of which a draw is fixed by a seed; theirs had none. As there, the test clips
    the original weights at the chosen rate, by a new draw. By default every rate is the
    best approximation of the weights, in either profile.

    Args:
        model: The model; left as it is.
        task: The task.
        module: One matrix, such as ``"W_Q"``, or ``"attn"``, ``"mlp"``, ``"all"``.
        rates: Clipping rates, in [0, 1), or ranks. The unpruned model
            takes part in any case.
        top_k: How many layers of largest condition number; the paper does not say.
        aggregate: How those of a module's matrices become one; nor does it say that:
            ``"max"``, ``"mean"``, ``"geometric_mean"`` or ``"min"``.
        shots: Demonstrations in front; all if ``None``.
        answers: Where answers are read and stored: a file, made if absent, which is of
            these weights; or a cache with keys of one's own, whose weights are the
            caller's care. In memory if ``None``. The answers of two tasks, methods,
            loops or seeds are kept apart, and so are those of exact and randomised
            singular systems.
        cache: Singular systems on disk.
        seed: Fixes the halves of ``selection``.
        level: Confidence level of all intervals and of the verdict.
        layer: The layer, if it is not to be chosen; ``top_k`` and ``aggregate`` are
            then not looked at.
        conditions: Condition numbers, if they are known.
        progress: Called as ``progress(done, total, part)`` after each matrix whose
            condition number is computed, and then after each batch of answers, with the
            split and the rates; :func:`~icltheory.batching.print_progress` shows it
            with the time left.
        **options: Further ones of :class:`~icltheory.bridge.evaluation.Grid`. The batch
            size is halved, with a warning, where the device runs out of memory.

    Returns:
        The choice, its scores, and the test.

    Example:
        >>> model = load_checkpoint("EleutherAI/gpt-j-6b", "bfloat16")  # doctest: +SKIP
        >>> task = load_task("sst2", path="folder")  # doctest: +SKIP
        >>> rates = [0, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995]
        >>> print(algorithm1(model, task, "mlp", rates, 4, "max"))  # doctest: +SKIP

    Source: Yao et al. (2024), Algorithm 1 and section 4.
    """
    rates = _checked(rates, seed, level)
    check_searchable(model, task, shots)
    choice = None
    if layer is None:
        # This raises for impossible choices before the slow decompositions.
        choose_layers([[1.0]] * model.num_layers, top_k, aggregate=aggregate)
        rows = conditions or condition_numbers(
            model, cache, module=module, progress=progress
        )
        choice = layer_choice(rows, module, top_k, aggregate)
        layer = choice.deepest
    options = {"systems": cache, "progress": progress, **options}
    method = method_name(options.get("method", LowRank()), options["systems"])
    answers = _answers(answers, model, task, shots, method)
    evaluator = CachedEvaluator(answers, model, task, shots, **options)
    return conduct(evaluator, layer, choice, module, rates, seed, level)


def layer_choice(
    conditions: Sequence[ConditionNumber], module: str, top_k: int, aggregate: str
) -> LayerChoice:
    """Algorithm 1's choice of layer from condition numbers.

    Args:
        conditions: Condition numbers of all layers.
        module: The module that will be pruned; only its matrices count.
        top_k: How many layers of largest condition number.
        aggregate: How those of a module's matrices become one.

    Returns:
        The k layers and the deepest of them.

    Source: Yao et al. (2024), Algorithm 1.
    """
    by_layer: dict[int, list[float]] = {}
    for row in conditions:
        if in_module(module, row.module, row.matrix):
            by_layer.setdefault(row.layer, []).append(row.condition_number)
    if sorted(by_layer) != list(range(len(by_layer))) or not by_layer:
        raise ValueError(
            f"conditions: expected condition numbers of {module} in every layer, got "
            f"them in layers {sorted(by_layer)}"
        )
    scores = [by_layer[layer] for layer in sorted(by_layer)]
    return choose_layers(scores, top_k, aggregate=aggregate)


def read_algorithm1(
    answers: AnswerCache,
    layer: int,
    module: str,
    rates: Sequence[Any],
    *,
    layers: LayerChoice | None = None,
    seed: int = 0,
    level: float = 0.95,
) -> Algorithm1Result:
    """Runs Algorithm 1 on stored answers, without the model.

    Args:
        answers: The answers.
        layer: The layer that was chosen.
        module: The pruned module.
        rates: The clipping rates or ranks.
        layers: How the layer was chosen, if it is to be reported.
        seed: Fixes the halves of ``selection``.
        level: Confidence level of all intervals and of the verdict.

    Returns:
        The same as :func:`algorithm1`.

    Source: Yao et al. (2024), Algorithm 1.
    """
    rates = _checked(rates, seed, level)
    return conduct(answers, layer, layers, module, rates, seed, level)


def check_searchable(model: Any, task: LanguageTask, shots: int | None) -> None:
    """Raises if a split is too small, a weight not finite, or the test set was seen.

    Single test examples that occur in the search's data are a warning.
    """
    for split in ("validation", "test"):
        if not task.examples(split):
            raise ValueError(
                f"task: expected {split} examples of {task.name}, got none"
            )
        denominator_of(len(task.examples(split)), task.denominator)
    check_weights(model)
    found: list[Finding] = []
    shown = task.demonstrations[:shots]
    for split, examples in (("validation", task.validation), ("demonstrations", shown)):
        overlap = check_overlap(f"{task.name} {split}", examples, task.test)
        if overlap and len(overlap) == len(examples):
            raise ValueError(
                f"task: expected {split} examples of {task.name} that are not in the "
                f"test set, got {len(overlap)} of {len(overlap)} that are"
            )
        found += overlap
    enforce(gather(found))


def _checked(rates: Any, seed: int, level: float) -> tuple[float | Rank, ...]:
    """Returns the searched rates or ranks; raises for duplicates and invalid ones.

    Seed and level are used after the evaluation, and are checked before it.
    """
    check_nonnegative_int("seed", seed)
    check_open_unit("level", level)
    values = as_strengths(rates)
    if len(set(values)) < len(values):
        got = ", ".join(map(str, values))
        raise ValueError(f"rates: expected no duplicates, got {got}")
    return values


def _answers(
    answers: Any, model: Any, task: LanguageTask, shots: int | None, method: str
) -> AnswerCache:
    """Opens a file of answers; raises for a cache of another task's."""
    facts = facts_of(task)
    if isinstance(answers, AnswerCache):
        if answers.facts != facts:
            theirs = answers.facts
            other = [
                n for n in facts._fields if getattr(theirs, n) != getattr(facts, n)
            ]
            raise ValueError(
                f"answers: expected those to {facts.name} with these demonstrations "
                f"and examples, got those to {theirs.name} with another "
                f"{', '.join(other)}; use another cache"
            )
        return answers
    file = answers if answers is None else open_answers(answers, model)
    return AnswerCache(facts, file, **shared_fields(task, shots), method=method)


def shared_fields(task: LanguageTask, shots: int | None) -> dict[str, Any]:
    """Returns what the keys of all answers of a search have in common."""
    shown = len(task.demonstrations) if shots is None else shots
    return {"profile": task.profile, "shots": shown}


def open_answers(answers: Any, model: Any) -> AnswerFile:
    """Opens the file of the answers by these weights."""
    if isinstance(answers, AnswerFile):
        return answers
    config = {"checkpoint": model.source, "weights": weights_digest(model)}
    return AnswerFile(answers, config)
