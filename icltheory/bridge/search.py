"""Algorithm 1 and its extension to several modules: searches that are tested once.

Both choose among candidates on the validation set, by
:func:`icltheory.pruning.search`; the unpruned and the chosen model then answer the same
test examples.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from icltheory._checks import (
    check_nonnegative_int,
    check_sequence,
    open_unit,
    wrong,
)
from icltheory.bridge.evaluation.result import denominator_of
from icltheory.bridge.evaluator import Evaluator
from icltheory.bridge.model import check_weights
from icltheory.bridge.spectra import ConditionNumber
from icltheory.bridge.tasks import Finding, check_overlap, enforce
from icltheory.layered.matrices import in_module
from icltheory.pruning import (
    Intervention,
    LayerChoice,
    Selection,
    choose_layers,
    corrected_selection,
    search,
)
from icltheory.pruning.choice import weakest_first
from icltheory.pruning.rates import as_strengths
from icltheory.statistics import (
    Comparison,
    Interval,
    MajorityBaseline,
    compare,
    majority_baseline,
    proportion_interval,
)


@dataclasses.dataclass(frozen=True, eq=False)
class SearchResult:
    """What a search chose, with its validation and test results.

    Accuracies are by the task's denominator, the comparison is by the number of
    examples.

    Args:
        path: The chosen interventions in the order in which they were added; none if
            nothing improved.
        path_scores: Validation accuracy of the unpruned model, and after each of them.
        tried: Text of every model that answered the validation set, and its accuracy.
        stopped: Why the search ended, see :class:`icltheory.pruning.Search`.
        test_before: Accuracy of the unpruned model on the test set, ``test_after`` that
            of the chosen one.
        comparison: Before and after on the same test examples, with the interval of the
            difference; its ``p_value`` is exact, and 1 if nothing was chosen.
        majority: Share of the commonest class of the test set.
        layers: How Algorithm 1's layer was chosen; ``None`` if it was not.
        selection: How much of Algorithm 1's validation accuracy is luck of the search;
            ``None`` for other searches.

    Source: Yao et al. (2024), Algorithm 1; Sharma et al. (2023), "LASER".
    """

    path: tuple[Intervention, ...]
    path_scores: tuple[float, ...]
    tried: dict[str, float]
    stopped: str
    test_before: float
    test_after: float
    comparison: Comparison
    before_interval: Interval
    after_interval: Interval
    majority: MajorityBaseline
    layers: LayerChoice | None = None
    selection: Selection | None = None

    @property
    def rate(self) -> Any:
        """Algorithm 1's rate or :class:`~icltheory.pruning.Rank`; 0 for none."""
        return self.path[0].strength if self.path else 0.0

    @property
    def unpruned_score(self) -> float:
        """Validation accuracy of the unpruned model."""
        return self.path_scores[0]

    @property
    def validation_score(self) -> float:
        """Validation accuracy of the choice."""
        return self.path_scores[-1]

    def __str__(self) -> str:
        what = " ".join(map(str, self.path)) or "unpruned"
        return f"{what}: {self.comparison}, majority {self.majority.share:.4f}"


def algorithm1(
    evaluator: Evaluator,
    layer: int | LayerChoice,
    module: str,
    rates: Sequence[Any],
    *,
    seed: int = 0,
    level: float = 0.95,
) -> SearchResult:
    r"""Chooses a rate of one layer by validation accuracy, and tests it once.

    .. math:: \xi^* = \arg\max_{\xi} a_{\mathrm{val}}(l^*, \xi)

    if that exceeds the unpruned accuracy, otherwise 0; ties go to the smaller rate, and
    of ranks among the rates to the larger one. The layer is that of
    :func:`choose_layer`, or any other. As printed the algorithm starts from 0 instead,
    and prunes also where every rate does harm. The winner of a search looks better than
    it is: an exact paired test says whether its difference on the test set could be
    chance. No test example takes part in a choice.

    In the profile ``"authors_code"`` ties of label tokens (all tasks but COPA) count as
    wrong, and accuracies are divided as the scripts do. Their layers are 26 and 27 of
    GPT-J and 30 of LLaMA 2. Their search is had by ``method=Cumulative(rates)`` of the
    evaluator.

    Args:
        layer: Number of the layer, or how it was chosen.
        module: One matrix, such as ``"W_Q"``, or ``"attn"``, ``"mlp"``, ``"all"``.
        rates: Clipping rates, in [0, 1), or ranks. The unpruned model takes part in any
            case.
        seed: Fixes the halves of ``selection``.
        level: Confidence level of all intervals and of the verdict.

    Example:
        >>> from icltheory import bridge
        >>> model = bridge.load_checkpoint("EleutherAI/gpt-j-6b")  # doctest: +SKIP
        >>> task = bridge.load_task("sst2", path="folder")  # doctest: +SKIP
        >>> rows = bridge.condition_numbers(model)  # doctest: +SKIP
        >>> layer = choose_layer(rows, "mlp", 4, "max")  # doctest: +SKIP
        >>> rates = [0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995]
        >>> evaluator = Evaluator(model, task)  # doctest: +SKIP
        >>> print(algorithm1(evaluator, layer, "mlp", rates))  # doctest: +SKIP

    Source: Yao et al. (2024), Algorithm 1 and section 4.
    """
    check_nonnegative_int("seed", seed)
    open_unit("level", level)
    rates = as_strengths(rates)
    number = layer.deepest if isinstance(layer, LayerChoice) else layer
    weak = [rates[i] for i in weakest_first(rates) if rates[i] != 0]
    every = [Intervention(number, module, rate) for rate in weak]
    if every:
        found = _search(evaluator, every, level)
    else:
        _check_searchable(evaluator)
        before = evaluator.accuracy(evaluator.correct("validation")[0])
        found = _tested(evaluator, (), (before,), {"": before}, "no candidates", level)
    how: dict[str, Any] = {"layers": layer if isinstance(layer, LayerChoice) else None}
    if every and len(evaluator.task.validation) > 1:
        right = evaluator.correct("validation", [(), *every])
        how["selection"] = corrected_selection(right[1:], weak, right[0], seed=seed)
    return dataclasses.replace(found, **how)


def choose_layer(
    conditions: Sequence[ConditionNumber], module: str, top_k: int, aggregate: str
) -> LayerChoice:
    r"""Algorithm 1's choice of layer, from condition numbers.

    .. math:: l^* = \max \operatorname{top}_k \big( \operatorname{agg}_m
        \kappa(W_{l,m}) \big)

    Only the matrices of the module count. Returned are the k layers and the deepest of
    them. The paper says neither ``top_k`` nor how the condition numbers of a module's
    matrices become one: ``"max"``, ``"mean"``, ``"geometric_mean"`` or ``"min"``.

    Source: Yao et al. (2024), Algorithm 1.
    """
    by_layer: dict[int, list[float]] = {}
    check_sequence("conditions", conditions)
    for row in conditions:
        if in_module(module, row.module, row.matrix):
            by_layer.setdefault(row.layer, []).append(row.condition_number)
    layers = sorted(by_layer)
    if layers != list(range(len(layers))) or not layers:
        wanted = f"condition numbers of {module} in every layer"
        raise ValueError(f"conditions: expected {wanted}, got them in layers {layers}")
    scores = [by_layer[layer] for layer in layers]
    return choose_layers(scores, top_k, aggregate=aggregate)


def search_compositions(
    evaluator: Evaluator,
    candidates: Sequence[Intervention | str],
    *,
    budget: int,
    beam: int = 1,
    level: float = 0.95,
) -> SearchResult:
    """Chooses interventions one by one by validation accuracy, and tests them once.

    The search is :func:`icltheory.pruning.search` with the accuracy on validation as
    the score; ``budget`` counts the models that answer the validation set. With
    candidates of one layer and module it is Algorithm 1's search of a rate. No test
    example takes part in a choice.

    Args:
        level: Confidence level of all intervals and of the verdict.

    Example:
        >>> candidates = [f"{l}:mlp:{r}" for l in (26, 27) for r in (0.5, 0.9)]
        >>> evaluator = Evaluator(model, task)  # doctest: +SKIP
        >>> print(search_compositions(
        ...     evaluator, candidates, budget=20))  # doctest: +SKIP

    Source: Sharma et al. (2023), section 5; Yao et al. (2024), Algorithm 1.
    """
    open_unit("level", level)
    return _search(evaluator, candidates, level, budget=budget, beam=beam)


def _search(evaluator, candidates, level, **how) -> SearchResult:
    """Searches over compositions of the candidates, and tests the choice."""
    _check_searchable(evaluator)

    def score(compositions):
        rows = evaluator.correct("validation", compositions)
        return [evaluator.accuracy(row) for row in rows]

    for one in candidates if not isinstance(candidates, str) else ():
        evaluator.read(one)
    found = search(evaluator.model, candidates, score, **how)
    tried = {" ".join(map(str, c)): score for c, score in found.tried.items()}
    return _tested(evaluator, found.path, found.scores, tried, found.stopped, level)


def _tested(evaluator, path, scores, tried, stopped, level) -> SearchResult:
    """Lets the unpruned and the chosen model answer the test set."""
    before, after = evaluator.correct("test", [(), path])

    def interval(right):
        return proportion_interval(int(right.sum()), len(right), level=level)

    task = evaluator.task
    labels = np.array([example.label for example in task.test])
    return SearchResult(
        path=tuple(path),
        path_scores=tuple(scores),
        tried=tried,
        stopped=stopped,
        test_before=evaluator.accuracy(before),
        test_after=evaluator.accuracy(after),
        comparison=compare(before, after, level=level),
        before_interval=interval(before),
        after_interval=interval(after),
        majority=majority_baseline(labels, task.labels),
    )


def _check_searchable(evaluator: Evaluator) -> None:
    """Raises if a split is too small, a weight not finite, or the test set was seen.

    Single test examples that occur in the search's data are a warning.
    """
    if not isinstance(evaluator, Evaluator):
        raise wrong("evaluator", "an Evaluator of a model and a task", evaluator)
    task = evaluator.task
    for split in ("validation", "test"):
        if not task.examples(split):
            wanted = f"{split} examples of {task.name}"
            raise ValueError(f"task: expected {wanted}, got none")
        denominator_of(len(task.examples(split)), task.denominator)
    check_weights(evaluator.model)
    found: list[Finding] = []
    shown = task.demonstrations[: evaluator.shots]
    for split, examples in (("validation", task.validation), ("demonstrations", shown)):
        overlap = check_overlap(f"{task.name} {split}", examples, task.test)
        if overlap and len(overlap) == len(examples):
            raise ValueError(
                f"task: expected {split} examples of {task.name} that are not in the "
                f"test set, got {len(overlap)} of {len(overlap)} that are"
            )
        found += overlap
    enforce(found)
