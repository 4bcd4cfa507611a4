"""The rate search of Algorithm 1, its final test, and the record of both."""

import dataclasses
from typing import Any

import numpy as np

from icltheory.bridge.answer_cache import AnswerCache
from icltheory.bridge.cached_evaluator import CachedEvaluator
from icltheory.pruning import (
    LayerChoice,
    Rank,
    Selection,
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


@dataclasses.dataclass(frozen=True, eq=False)
class Algorithm1Result:
    """The choice of Algorithm 1, with its validation and test results.

    Accuracies are by the task's denominator, the comparison is by the number of
    examples.

    Args:
        layer: The layer.
        rate: The clipping rate, or the :class:`~icltheory.pruning.Rank` where ranks
            were searched; 0 if none improved on the unpruned model.
        validation_scores: Accuracy at each of the rates on validation.
        test_before: Accuracy of the unpruned model on the test set.
        test_after: Accuracy of the pruned one.
        p_value: Exact two-sided p-value of no difference on the test set; 1 at rate 0.
            The p-value that fits the interval is ``comparison.score_p_value``.
        rates: The rates or ranks, as given.
        unpruned_score: Accuracy of the unpruned model on validation.
        module: The pruned module.
        layers: How the layer was chosen; ``None`` if it was given.
        comparison: Before and after on the same test examples, with the interval of
            the difference.
        before_interval: Interval of the accuracy before.
        after_interval: Interval of the accuracy after.
        majority: Share of the commonest class of the test set.
        selection: How much of the validation score is luck of the search; ``None``
            where there is nothing to choose from. Its ``rate`` is as above.
        evaluations: How many answers the search looked at.

    Source: Yao et al. (2024), Algorithm 1.
    """

    layer: int
    rate: Any  # float or Rank
    validation_scores: tuple[float, ...]
    test_before: float
    test_after: float
    p_value: float
    rates: tuple[Any, ...]
    unpruned_score: float
    module: str
    layers: LayerChoice | None
    comparison: Comparison
    before_interval: Interval
    after_interval: Interval
    majority: MajorityBaseline
    selection: Selection | None
    evaluations: int

    @property
    def could_be_chance(self) -> bool:
        """Whether the difference on the test set is not significant, as at rate 0."""
        return self.comparison.could_be_chance

    @property
    def validation_score(self) -> float:
        """Validation accuracy of the choice."""
        if self.rate == 0:
            return self.unpruned_score
        return self.validation_scores[self.rates.index(self.rate)]

    def __str__(self) -> str:
        rank = isinstance(self.rate, Rank)
        strength = str(self.rate) if rank else f"rate {self.rate:g}"
        what = f"{self.module} of layer {self.layer}, {strength}"
        return f"{what}: {self.comparison}, majority {self.majority.share:.4f}"


def conduct(
    answers: AnswerCache | CachedEvaluator,
    layer: int,
    layers: LayerChoice | None,
    module: str,
    rates: tuple[float | Rank, ...],
    seed: int,
    level: float,
) -> Algorithm1Result:
    """Searches the rates or ranks on the validation set and tests the best one."""
    arms = _arms(rates)
    at = (layer, module)
    examples, selection = answers.facts.sizes["validation"], None
    right = answers.correct("validation", *at, arms)
    scores = [answers.accuracy(row) for row in right]
    # Only the order of the arms matters, so their positions serve as rates.
    places = np.arange(len(arms)) / len(arms)
    index = choose_rate(scores[1:], places[1:], scores[0]).index
    rate: Any = 0.0 if index is None else arms[1 + index]
    if examples > 1 and len(arms) > 1:
        corrected = corrected_selection(right[1:], places[1:], right[0], seed=seed)
        selection = corrected._replace(rate=rate)
    pair = (0.0,) if rate == 0 else (0.0, rate)
    tested = answers.correct("test", *at, pair)
    labels, score_at = answers.facts.labels, dict(zip(arms, scores, strict=True))
    found = compare(tested[0], tested[-1], level=level)
    before, after = (
        proportion_interval(int(right.sum()), len(right), level=level)
        for right in (tested[0], tested[-1])
    )
    return Algorithm1Result(
        layer=layer,
        rate=rate,
        validation_scores=tuple(score_at[rate] for rate in rates),
        test_before=answers.accuracy(tested[0]),
        test_after=answers.accuracy(tested[-1]),
        p_value=found.p_value,
        rates=rates,
        unpruned_score=scores[0],
        module=module,
        layers=layers,
        comparison=found,
        before_interval=before,
        after_interval=after,
        majority=majority_baseline(answers.labels("test"), labels),
        selection=selection,
        evaluations=len(arms) * examples,
    )


def _arms(rates: tuple[float | Rank, ...]) -> tuple[float | Rank, ...]:
    """Returns the unpruned model and the strengths, weakest clipping first."""
    ranks = sorted((r for r in rates if isinstance(r, Rank)), key=lambda r: -r.value)
    return (*sorted({0.0, *(r for r in rates if not isinstance(r, Rank))}), *ranks)
