"""Searches for several modules to clip together."""

import dataclasses
import itertools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory._checks import check_open_unit, check_positive_int, check_sequence
from icltheory.batching import Progress
from icltheory.bridge._beam import beam_search
from icltheory.bridge.answer_cache import AnswerCache, facts_of
from icltheory.bridge.answer_file import AnswerFile
from icltheory.bridge.cached_evaluator import CachedEvaluator, method_name
from icltheory.bridge.evaluation import GridChunk, evaluate
from icltheory.bridge.layer_search import (
    check_searchable,
    open_answers,
    shared_fields,
)
from icltheory.bridge.model import LanguageModel
from icltheory.bridge.pruning import prepared, prune_model
from icltheory.bridge.spectra import SingularSystems
from icltheory.bridge.tasks import LanguageTask
from icltheory.pruning import Intervention, LowRank, Method
from icltheory.pruning.methods import check_method, kept_table
from icltheory.statistics import Comparison, Interval, compare, proportion_interval

__all__ = ["CompositionSearch", "CompositionStep", "search_compositions"]

# Place of answers that belong to no layer: the unpruned model, embeddings and head.
_NO_LAYER, _UNPRUNED = -1, ("unpruned", (0.0,))


class CompositionStep(NamedTuple):
    """One step of a search over compositions.

    Args:
        intervention: What was clipped beside what was clipped before.
        validation_score: Accuracy on validation with all of it.
    """

    intervention: Intervention
    validation_score: float


@dataclasses.dataclass(frozen=True, eq=False)
class CompositionSearch:
    """The result of a search over compositions, with its test results.

    Accuracies are by the task's denominator, the comparison is by the number of
    examples.

    Args:
        path: The steps to the composition; none if nothing improved.
        unpruned_score: Accuracy of the unpruned model on validation.
        evaluations: How many models answered the validation set, the unpruned included.
        budget: How many of them were allowed.
        beam: How many compositions of each size were extended.
        stopped: Why the search ended: ``"budget"``, ``"no improvement"``, or ``"no
            candidates"`` where every one was in the composition or overlapped with it.
        test_before: Accuracy of the unpruned model on the test set.
        test_after: Accuracy of the pruned one.
        comparison: Before and after on the same test examples, with the interval of
            the difference.
        before_interval: Interval of the accuracy before.
        after_interval: Interval of the accuracy after.

    Source: Sharma et al. (2023), "LASER".
    """

    path: tuple[CompositionStep, ...]
    unpruned_score: float
    evaluations: int
    budget: int
    beam: int
    stopped: str
    test_before: float
    test_after: float
    comparison: Comparison
    before_interval: Interval
    after_interval: Interval

    @property
    def interventions(self) -> tuple[Intervention, ...]:
        """The chosen composition, for :func:`~icltheory.bridge.prune_model`."""
        return tuple(step.intervention for step in self.path)

    @property
    def validation_score(self) -> float:
        """Validation accuracy of the chosen composition."""
        return self.path[-1].validation_score if self.path else self.unpruned_score

    def __str__(self) -> str:
        return f"{_text(self.interventions) or 'unpruned'}: {self.comparison}"


def search_compositions(
    model: LanguageModel,
    task: LanguageTask,
    candidates: Sequence[Intervention | str],
    *,
    budget: int,
    beam: int = 1,
    shots: int | None = None,
    answers: AnswerFile | str | os.PathLike | None = None,
    cache: SingularSystems | None = None,
    method: Method = LowRank(),
    level: float = 0.95,
    batch_size: int = 32,
    layers_at_once: int = 4,
    progress: Progress | None = None,
) -> CompositionSearch:
    r"""Chooses interventions one by one by validation accuracy, and tests once.

    .. math::
        C_0 = \emptyset , \qquad
        C_{t+1} = \arg\max_{c} a_{\mathrm{val}}(C_t \cup \{c\}) \quad \text{while} \quad
        a_{\mathrm{val}}(C_{t+1}) > a_{\mathrm{val}}(C_t)

    over the candidates c that share no matrix with :math:`C_t`: a greedy search. With a
    beam of B the B best compositions of each size are extended, and the search ends
    where the best of a size is not strictly better than the best so far. Of equal ones
    the first in the order of the candidates is taken. No composition is evaluated
    twice: the matrices are disjoint, so their order plays no part.

    One evaluation is the validation set answered by one model. A budget that ends
    within a size leaves out its last candidates. All candidates of one size above the
    same composition share what runs below the pruned layer, and all strengths of a
    module one program; embeddings and head are evaluated one model at a time.

    The winner of a search looks better than it is. The unpruned and the chosen model
    therefore answer the same test examples, once. No test example takes part in a
    choice. With candidates of one layer and module this is Algorithm 1's search of a
    rate, or of a rank.

    Args:
        model: The model; left as it is.
        task: The task.
        candidates: What may be clipped, as records or text such as ``"26:mlp:0.9"``.
        budget: Most evaluations, at least 2.
        beam: How many compositions of each size are extended; 1 is greedy.
        shots: Demonstrations in front; all if ``None``.
        answers: File of the answers, made if absent, from which a search goes on; it is
            of these weights. In memory if ``None``.
        cache: Singular systems on disk; a decomposition each if ``None``.
        method: How matrices are pruned.
        level: Confidence level of all intervals and of the verdict.
        batch_size: Most examples that run together.
        layers_at_once: Layers whose pruned matrices are held at the same time.
        progress: Called as ``progress(done, total, part)`` after each batch; the part
            names the composition and the strengths.

    Returns:
        The path to the composition, its scores, the evaluations, and the test.

    Example:
        >>> model = load_checkpoint("EleutherAI/gpt-j-6b", "bfloat16")  # doctest: +SKIP
        >>> task = load_task("sst2", path="folder")  # doctest: +SKIP
        >>> candidates = [f"{l}:mlp:{r}" for l in (26, 27) for r in (0.5, 0.9)]
        >>> print(search_compositions(
        ...     model, task, candidates, budget=20))  # doctest: +SKIP

    Source: Sharma et al. (2023), "The truth is in there: improving reasoning in
    language models with layer-selective rank reduction", section 5, compositions; Yao
    et al. (2024), Algorithm 1.
    """
    read = _candidates(model, candidates, method)
    check_positive_int("budget", budget)
    check_positive_int("beam", beam)
    check_positive_int("layers_at_once", layers_at_once)
    check_positive_int("batch_size", batch_size)
    check_open_unit("level", level)
    if budget < 2:
        raise ValueError(f"budget: expected at least 2 evaluations, got {budget}")
    check_searchable(model, task, shots)
    judge = _Judge(model, task, shots, answers, cache, method, layers_at_once, progress)
    judge.options |= {"batch_size": batch_size}

    def score(pairs):
        wanted = [(_pick(read, chosen), read[number]) for chosen, number in pairs]
        return judge.validation_scores(wanted)

    touched = [_touched(model, one) for one in read]
    found = beam_search(judge.unpruned_score(), touched, score, budget, beam)
    chosen = _pick(read, found.best.chosen)
    before, after = judge.correct("test", ()), judge.correct("test", chosen)
    intervals = [
        proportion_interval(int(right.sum()), len(right), level=level)
        for right in (before, after)
    ]
    return CompositionSearch(
        path=tuple(map(CompositionStep, chosen, found.best.scores[1:])),
        unpruned_score=found.best.scores[0],
        evaluations=found.evaluations,
        budget=budget,
        beam=beam,
        stopped=found.stopped,
        test_before=judge.accuracy(before),
        test_after=judge.accuracy(after),
        comparison=compare(before, after, level=level),
        before_interval=intervals[0],
        after_interval=intervals[1],
    )


class _Judge:
    """Evaluates compositions, with one answer cache for each set of earlier ones.

    The last intervention of a composition is the place within the cache of the others.
    """

    def __init__(self, model, task, shots, answers, systems, method, at_once, progress):
        self.model, self.task, self.shots = model, task, shots
        self.method, self.at_once = method, at_once
        self.progress = progress
        self.options: dict[str, Any] = {
            "method": method,
            "systems": systems,
        }
        self.facts = facts_of(task)
        name = method_name(method, systems)
        self.fields = {**shared_fields(task, shots), "method": name}
        self.file = None if answers is None else open_answers(answers, model)
        self._caches: dict[str, AnswerCache] = {}
        self._current: tuple[Any, CachedEvaluator | None] = (None, None)

    def accuracy(self, right: np.ndarray) -> float:
        """Accuracy with the denominator of the task."""
        return self._cache(()).accuracy(right)

    def unpruned_score(self) -> float:
        """Returns the validation accuracy of the unpruned model."""
        return self.accuracy(self.correct("validation", ()))

    def validation_scores(
        self, wanted: Sequence[tuple[tuple[Intervention, ...], Intervention]]
    ) -> list[float]:
        """Returns the accuracy of each composition with one more intervention."""
        scores = []
        for below, pairs in itertools.groupby(wanted, lambda pair: pair[0]):
            ones = [one for _, one in pairs]
            self._together(below, [one for one in ones if one.layer is not None])
            scores += [
                self.accuracy(self.correct("validation", (*below, one))) for one in ones
            ]
        return scores

    def correct(self, split: str, composition: tuple[Intervention, ...]) -> np.ndarray:
        """Returns which answers of a composition are right."""
        below, one = composition[:-1], composition[-1] if composition else None
        cache, at = self._cache(below), (split, *_place(one))
        if not cache.known(*at).all():
            if one is None or one.layer is None:
                self._plainly(cache, at, composition)
            else:
                self._evaluator(below).correct(*at)
        return cache.correct(*at)[0]

    def _together(self, below, ones) -> None:
        """Evaluates interventions on one composition in as few passes as possible."""
        strengths: dict[tuple[int, str], list[Any]] = {}
        for one in ones:
            if not self._cache(below).known("validation", *_place(one)).all():
                strengths.setdefault((one.layer, one.module), []).append(one.strength)
        alike: dict[tuple[str, tuple], list[int]] = {}
        for (layer, module), own in strengths.items():
            alike.setdefault((module, tuple(own)), []).append(layer)
        for (module, own), layers in alike.items():
            for start in range(0, len(layers), self.at_once):
                some = layers[start : start + self.at_once]
                evaluator = self._evaluator(below)
                evaluator.evaluate_missing("validation", some, [module], own)

    def _plainly(self, cache, at, composition) -> None:
        """Evaluates one model without shared computation, and stores its answers."""
        split, layer, name, strengths = at
        found = evaluate(
            self._clipped(composition),
            self.task,
            split,
            self.shots,
            batch_size=self.options["batch_size"],
            progress=self._told(composition),
        )
        everything = np.arange(found.num_examples)
        chunk = GridChunk(layer, name, everything, found.scores[None])
        cache.add(split, strengths, [chunk], found.labels)

    def _cache(self, below: tuple[Intervention, ...]) -> AnswerCache:
        name = _text(below)
        if name not in self._caches:
            fields = {**self.fields, "composition": name}
            self._caches[name] = AnswerCache(self.facts, self.file, **fields)
        return self._caches[name]

    def _evaluator(self, below: tuple[Intervention, ...]) -> CachedEvaluator:
        held, evaluator = self._current
        if evaluator is None or held != below:
            self._current = (None, None)  # frees its matrices first
            evaluator = CachedEvaluator(
                self._cache(below),
                self._clipped(below),
                self.task,
                self.shots,
                progress=self._told(below),
                **self.options,
            )
            self._current = (below, evaluator)
        return evaluator

    def _clipped(self, composition: tuple[Intervention, ...]) -> LanguageModel:
        return prune_model(
            self.model,
            composition,
            method=self.method,
            systems=self.options["systems"],
        )

    def _told(self, composition: tuple[Intervention, ...]) -> Progress | None:
        """Returns a progress function that names the composition."""
        progress, name = self.progress, _text(composition) or "unpruned"
        if progress is None:
            return None
        return lambda done, total, part: progress(
            done, total, f"{name}: {part}" if part else name
        )


def _place(one: Intervention | None) -> tuple[int, str, tuple[Any, ...]]:
    """Returns layer, module and strength of an intervention for an answer cache."""
    if one is None:
        return _NO_LAYER, *_UNPRUNED
    layer = _NO_LAYER if one.layer is None else one.layer
    return layer, one.module, (one.strength,)


def _text(composition: Sequence[Intervention]) -> str:
    """Formats a composition as text that does not depend on its order."""
    return " ".join(sorted(map(str, composition)))


def _pick(read: Sequence[Intervention], numbers: Sequence[int]):
    return tuple(read[number] for number in numbers)


def _candidates(model, candidates, method) -> tuple[Intervention, ...]:
    """Parses the candidates and checks that each fits the model."""
    check_sequence("candidates", candidates)
    check_method(method)
    read: list[Intervention] = []
    for candidate in candidates:
        own, (one,) = prepared(model, [candidate])
        kept_table(method, own.params, one.specs(own), [one.strength])
        read.append(one)
    if not read:
        raise ValueError("candidates: expected at least one, got none")
    names = [str(one) for one in read]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"candidates: expected no duplicates, got {twice[0]} twice")
    return tuple(read)


def _touched(model: LanguageModel, one: Intervention) -> set[Any]:
    """Returns the matrices that an intervention changes."""
    if one.layer is None:
        return {(None, name) for name in one.matrices}
    return {(one.layer, spec.name) for spec in one.specs(model)}
