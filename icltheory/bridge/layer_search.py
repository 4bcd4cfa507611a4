"""Algorithm 1 on a language model: a layer, a rate, and one look at the test set."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from icltheory._named_errors import named_errors
from icltheory._public import shown
from icltheory.batching import Progress
from icltheory.bridge import racing
from icltheory.bridge.answer_cache import PLACE_FIELDS, AnswerCache, facts_of
from icltheory.bridge.cached_evaluator import CachedEvaluator, method_name
from icltheory.bridge.model import weights_digest
from icltheory.bridge.records import Records
from icltheory.bridge.spectra import (
    ConditionNumber,
    SingularSystems,
    condition_numbers,
)
from icltheory.bridge.tasks import LanguageTask
from icltheory.bridge.tasks.lint import check_overlap
from icltheory.layered.matrices import modules_of
from icltheory.pruning import (
    LayerChoice,
    Selection,
    choose_layers,
    choose_rate,
    corrected_selection,
)
from icltheory.statistics import (
    Comparison,
    Interval,
    MajorityBaseline,
    compare,
    majority_baseline,
    proportion_interval,
)

__all__ = ["Algorithm1Result", "algorithm1", "layer_choice", "read_algorithm1"]


@dataclasses.dataclass(frozen=True, eq=False)
class Algorithm1Result:
    """What Algorithm 1 chose, and what it was worth on the test set.

    Accuracies are by the task's denominator, the comparison is by the number of
    examples.

    Args:
        layer: The layer.
        rate: The clipping rate; 0 if no rate improved on the unpruned model.
        validation_scores: Accuracy at each of the rates on validation; in a race, on
            those examples that the rate was evaluated on.
        test_before: Accuracy of the unpruned model on the test set.
        test_after: Accuracy of the pruned one.
        p_value: Exact two-sided p-value of no difference on the test set; 1 at rate 0.
        rates: The rates, as given.
        unpruned_score: Accuracy of the unpruned model on validation.
        module: The pruned module.
        layers: How the layer was chosen; ``None`` if it was given.
        comparison: Before and after on the same test examples, with the interval of
            the difference.
        before_interval: Interval of the accuracy before.
        after_interval: Interval of the accuracy after.
        majority: Share of the commonest class of the test set.
        selection: How much of the validation score is luck of the search; ``None``
            after a race, or where there is nothing to choose from.
        race: What a race dropped and when; ``None`` for the full grid, and where there
            is nothing to race.
        evaluations: How many answers the search looked at.
        full_evaluations: How many the full grid has.

    References:
        Yao et al. (2024), Algorithm 1. Verified by ``tests/bridge/test_algorithm1.py``.
    """

    layer: int
    rate: float
    validation_scores: tuple[float, ...]
    test_before: float
    test_after: float
    p_value: float
    rates: tuple[float, ...]
    unpruned_score: float
    module: str
    layers: LayerChoice | None
    comparison: Comparison
    before_interval: Interval
    after_interval: Interval
    majority: MajorityBaseline
    selection: Selection | None
    race: racing.RaceResult | None
    evaluations: int
    full_evaluations: int

    @property
    def could_be_chance(self) -> bool:
        """Whether the difference on the test set could be chance, as at rate 0."""
        return self.comparison.could_be_chance

    @property
    def validation_score(self) -> float:
        """Score of what was chosen, on the examples it was chosen on."""
        if self.rate == 0:
            return self.unpruned_score
        return self.validation_scores[self.rates.index(self.rate)]

    def __str__(self) -> str:
        what = f"{self.module} of layer {self.layer}, rate {self.rate:g}"
        return f"{what}: {self.comparison}, majority {self.majority.share:.4f}"


@named_errors
def algorithm1(
    model: Any,
    task: LanguageTask,
    module: str,
    rates: Sequence[Any],
    top_k: int,
    aggregate: str,
    *,
    shots: int | None = None,
    records: Records | AnswerCache | str | os.PathLike | None = None,
    race: bool = False,
    cache: SingularSystems | None = None,
    seed: int = 0,
    layer: int | None = None,
    conditions: Sequence[ConditionNumber] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Algorithm1Result:
    r"""Chooses a layer by condition numbers and a rate by validation, and tests once.

    .. math::
        l^* = \max \operatorname{top}_k \big( \operatorname{agg}_m \kappa(W_{l,m}) \big)
        , \qquad
        \xi^* = \arg\max_{\xi} a_{\mathrm{val}}(l^*, \xi)

    if that exceeds the unpruned score, otherwise 0; ties go to the smaller rate. As
    printed the algorithm starts from 0 instead, and prunes also where every rate does
    harm. The winner of a search looks better than it is, so both models then answer the
    same test examples, once, and an exact paired test says whether their difference
    could be chance. No test example takes part in a choice.

    In the profile ``"authors_code"`` ties count as wrong, and accuracies are divided as
    the scripts do. Their layers are given by ``layer`` (26 and 27 of GPT-J, 30 of LLaMA
    2). Their search is had by ``method=Cumulative(rates)``: a randomised approximation
    of what the rate before left, of which a draw is fixed by a seed; theirs had none.
    As there, the test clips the original weights at the chosen rate, by a new draw. By
    default every rate is the best approximation of the weights, in either profile.

    Args:
        model: The model; left as it is.
        task: The task.
        module: One matrix, such as ``"W_Q"``, or ``"attn"``, ``"mlp"``, ``"all"``.
        rates: Clipping rates, in [0, 1). The unpruned model takes part in any case.
        top_k: How many layers of largest condition number; the paper does not say.
        aggregate: How those of a module's matrices become one; nor does it say that:
            ``"max"``, ``"mean"``, ``"geometric_mean"`` or ``"min"``.
        shots: Demonstrations in front; all if ``None``.
        records: Where answers are read and stored: a file, made if absent,
            which is of one task and of these weights; or records or a cache with
            keys of one's own, whose weights are the caller's care. In memory if
            ``None``. The answers of two methods, loops or seeds are kept apart.
        race: Whether rates that cannot win are dropped early; see
            :func:`~icltheory.bridge.racing.race`.
        cache: Singular systems on disk.
        seed: Fixes the order of a race and the bootstrap.
        layer: The layer, if it is not to be chosen; ``top_k`` and ``aggregate`` are
            then not looked at.
        conditions: Condition numbers, if they are known.
        progress: Called as ``progress(done, total, part)`` after each matrix whose
            condition number is computed, and then after each batch of answers; see
            :mod:`icltheory.batching`.
        **options: Further ones of :class:`~icltheory.bridge.evaluation.Grid`.

    Returns:
        The choice, its scores, and the test.

    Raises:
        ValueError: If a rate, the module, ``top_k`` or ``aggregate`` is out of range, a
            split has no examples, all of validation is in the test set, a prompt cannot
            be answered, or the records belong to something else.

    Example:
        >>> model = load_checkpoint("EleutherAI/gpt-j-6b", "bfloat16")  # doctest: +SKIP
        >>> task = load_task("sst2", path="folder")  # doctest: +SKIP
        >>> rates = [0, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995]
        >>> print(algorithm1(model, task, "mlp", rates, 4, "max"))  # doctest: +SKIP

    References:
        Yao et al. (2024), Algorithm 1 and section 4.
        Verified by ``tests/bridge/test_algorithm1.py``.
    """
    rates = _checked(rates)
    for split in ("validation", "test"):
        if not task.examples(split):
            raise ValueError(
                f"task: expected {split} examples of {task.name}, got none"
            )
    overlap = check_overlap("validation", task.validation, task.test)
    if len(overlap) == len(task.validation):
        raise ValueError(
            f"task: expected validation examples of {task.name} that are not in the "
            f"test set, got {len(overlap)} of {len(overlap)} that are"
        )
    choice = None
    if layer is None:
        # Impossible choices are refused before anything is decomposed.
        choose_layers([[1.0]] * model.num_layers, top_k, aggregate=aggregate)
        rows = conditions or condition_numbers(
            model, cache, module=module, progress=progress
        )
        choice = layer_choice(rows, module, top_k, aggregate)
        layer = choice.deepest
    method = method_name(options.get("method", "svd"))
    answers = _answers(records, model, task, shots, method)
    options = {"systems": cache, "progress": progress, **options}
    evaluator = CachedEvaluator(answers, model, task, shots, **options)
    return _conduct(evaluator, layer, choice, module, rates, race, seed)


@named_errors
def layer_choice(
    conditions: Sequence[ConditionNumber], module: str, top_k: int, aggregate: str
) -> LayerChoice:
    """Algorithm 1's layer from condition numbers.

    Args:
        conditions: Condition numbers of all layers.
        module: The module that will be pruned; only its matrices count.
        top_k: How many layers of largest condition number.
        aggregate: How those of a module's matrices become one.

    Returns:
        The k layers and the deepest of them.

    Raises:
        ValueError: If ``top_k`` or ``aggregate`` is out of range, or no matrix is of
            the module.

    References:
        Yao et al. (2024), Algorithm 1. Verified by ``tests/bridge/test_algorithm1.py``.
    """
    by_layer: dict[int, list[float]] = {}
    for row in conditions:
        if module in modules_of(row.module, row.matrix):
            by_layer.setdefault(row.layer, []).append(row.condition_number)
    if sorted(by_layer) != list(range(len(by_layer))) or not by_layer:
        raise ValueError(
            f"conditions: expected those of {module} in every layer, "
            f"got layers {sorted(by_layer)}"
        )
    scores = [by_layer[layer] for layer in sorted(by_layer)]
    return choose_layers(scores, top_k, aggregate=aggregate)


@named_errors
def read_algorithm1(
    answers: AnswerCache,
    layer: int,
    module: str,
    rates: Sequence[Any],
    *,
    layers: LayerChoice | None = None,
    race: bool = False,
    seed: int = 0,
) -> Algorithm1Result:
    """Algorithm 1 from stored answers, without the model.

    Args:
        answers: The answers.
        layer: The layer that was chosen.
        module: The pruned module.
        rates: The clipping rates.
        layers: How the layer was chosen, if it is to be reported.
        race: Whether to race over the rates.
        seed: Fixes the order of a race and the bootstrap.

    Returns:
        The same as :func:`algorithm1`.

    Raises:
        ValueError: If a rate is out of range, or answers are missing.

    References:
        Yao et al. (2024), Algorithm 1. Verified by ``tests/bridge/test_algorithm1.py``.
    """
    rates = _checked(rates)
    return _conduct(answers, layer, layers, module, rates, race, seed)


def _conduct(
    answers: AnswerCache | CachedEvaluator,
    layer: int,
    layers: LayerChoice | None,
    module: str,
    rates: tuple[float, ...],
    race: bool,
    seed: int,
) -> Algorithm1Result:
    """Searches the rates on the validation set and tests the chosen one."""
    arms = tuple(sorted({0.0, *rates}))
    at = (layer, module)
    examples, selection, raced = answers.facts.sizes["validation"], None, None
    if race and len(arms) > 1:
        raced = _race(answers, at, arms, seed)
        scores = [c / n for c, n in zip(raced.num_correct, raced.num_seen, strict=True)]
        rate = arms[raced.winner]
    else:
        right = answers.correct("validation", *at, arms)
        scores = [answers.accuracy(row) for row in right]
        rate = choose_rate(scores[1:], arms[1:], scores[0]).rate
        if examples > 1 and len(arms) > 1:
            selection = corrected_selection(right[1:], arms[1:], right[0], seed=seed)
    pair = (0.0,) if rate == 0 else (0.0, rate)
    tested = answers.correct("test", *at, pair)
    labels, score_at = answers.facts.labels, dict(zip(arms, scores, strict=True))
    return Algorithm1Result(
        layer=layer,
        rate=rate,
        validation_scores=tuple(score_at[rate] for rate in rates),
        test_before=answers.accuracy(tested[0]),
        test_after=answers.accuracy(tested[-1]),
        p_value=(found := compare(tested[0], tested[-1], seed=seed)).p_value,
        rates=rates,
        unpruned_score=scores[0],
        module=module,
        layers=layers,
        comparison=found,
        before_interval=proportion_interval(int(tested[0].sum()), len(tested[0])),
        after_interval=proportion_interval(int(tested[-1].sum()), len(tested[-1])),
        majority=majority_baseline(answers.labels("test"), labels),
        selection=selection,
        race=raced,
        evaluations=len(arms) * examples if raced is None else raced.evaluations,
        full_evaluations=len(arms) * examples,
    )


def _race(
    answers: AnswerCache | CachedEvaluator,
    at: tuple[int, str],
    arms: tuple[float, ...],
    seed: int,
) -> racing.RaceResult:
    def correct(places: tuple[int, ...], examples: np.ndarray) -> np.ndarray:
        return answers.correct("validation", *at, arms, examples, places)

    return racing.race(correct, len(arms), answers.facts.sizes["validation"], seed=seed)


def _checked(rates: Sequence[Any]) -> tuple[float, ...]:
    values = tuple(float(rate) for rate in rates)
    if not values:
        raise ValueError("rates: expected at least one, got none")
    for rate in values:
        if not 0 <= rate < 1:
            raise ValueError(f"rates: expected numbers in [0, 1), got {rate:g}")
    if len(set(values)) < len(values):
        raise ValueError(f"rates: expected each once, got {values}")
    return values


def _answers(
    records: Any, model: Any, task: LanguageTask, shots: int | None, method: str
) -> AnswerCache:
    """The answers that were given, or those of the records, for this task alone."""
    facts = facts_of(task)
    if isinstance(records, AnswerCache):
        if records.facts != facts:
            raise ValueError(
                f"records: expected those of {facts.name} with these demonstrations "
                f"and examples, got those of {records.facts.name} with others"
            )
        return records
    if records is None:
        return AnswerCache(facts, method=method)
    shown = len(task.demonstrations) if shots is None else shots
    fields: dict[str, Any] = {"task": task.name, "profile": task.profile}
    fields |= {"shots": shown, "method": method}
    if not isinstance(records, Records):
        config = {"checkpoint": model.source, "weights": weights_digest(model)}
        config["task"] = facts._asdict()
        records = Records(records, (*fields, *PLACE_FIELDS), config=config)
    return AnswerCache(facts, records, **fields)


__dir__ = shown(__name__)
