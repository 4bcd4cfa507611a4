"""Stores a pruned model's answers by layer, module, rate and example."""

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory.bridge.answer_file import Answer, AnswerFile
from icltheory.bridge.evaluation import GridChunk, predict
from icltheory.bridge.evaluation.result import denominator_of
from icltheory.bridge.tasks import LanguageTask
from icltheory.pruning.rates import key_of

__all__ = ["AnswerCache", "TaskFacts", "facts_of"]


class TaskFacts(NamedTuple):
    """The properties of a task that are needed to evaluate stored answers.

    Args:
        name: Name of the task.
        profile: ``"paper"`` or ``"authors_code"``.
        scoring: How options are scored.
        denominator: What a count of right answers is divided by.
        labels: Label words.
        sizes: Number of examples of each split.
        digest: Digest of all texts and labels; another draw has another.
    """

    name: str
    profile: str
    scoring: str
    denominator: str
    labels: tuple[str, ...]
    sizes: dict[str, int]
    digest: str

    @property
    def ties_are_wrong(self) -> bool:
        """Whether a tie counts as wrong, as in the authors' strict comparisons."""
        return self.profile == "authors_code" and self.scoring == "label_token"


def facts_of(task: LanguageTask) -> TaskFacts:
    """Returns the properties of a task for an answer cache.

    Args:
        task: The task.

    Returns:
        Its facts; those of two tasks are equal exactly if all their prompts are.
    """
    text = repr(dataclasses.replace(task, sources=()))
    return TaskFacts(
        task.name,
        task.profile,
        task.scoring,
        task.denominator,
        tuple(task.labels),
        {"validation": len(task.validation), "test": len(task.test)},
        hashlib.sha256(text.encode()).hexdigest(),
    )


class AnswerCache:
    """The scores of one model, pruned in many ways, on the examples of one task.

    Beside rates there may be a :class:`~icltheory.pruning.Rank`; in a file its rate is
    text such as ``"rank=8"``.

    With a file it begins with what that holds and adds to it; without, it is kept in
    memory. It needs no model, so that every table can be rebuilt from a file.

    Args:
        facts: The task.
        file: Where answers are kept, together with the digest of the task.
        **fields: What else tells models apart, such as ``shots`` and ``seed``;
            ``method`` names how the model is pruned, if not by ``"svd"``.

    Example:
        >>> facts = TaskFacts("toy", "paper", "label_token", "n", ("a", "b"),
        ...     {"validation": 2, "test": 0}, "")
        >>> answers = AnswerCache(facts)
        >>> chunk = GridChunk(3, "mlp", np.array([1, 0]), np.array([[[2, 1], [0, 1]]]))
        >>> answers.add("validation", (0.5,), [chunk], labels=np.array([0, 1]))
        >>> answers.correct("validation", 3, "mlp", (0.5,)).tolist()
        [[False, False]]
    """

    def __init__(self, facts: TaskFacts, file: AnswerFile | None = None, **fields: Any):
        self.facts, self.file, self.fields = facts, file, fields
        self.added, self._version = 0, -1
        self._labels: dict[str, np.ndarray] = {}
        self._scores: dict[tuple, np.ndarray] = {}
        self._known: dict[tuple, np.ndarray] = {}
        self._catch_up()

    def labels(self, split: str) -> np.ndarray:
        """Index of the correct option of each example.

        Args:
            split: ``"validation"`` or ``"test"``.

        Returns:
            The labels.
        """
        if split not in self._labels or (self._labels[split] < 0).any():
            known = int((self._labels.get(split, np.empty(0)) >= 0).sum())
            raise ValueError(
                f"records: expected answers to all {self.facts.sizes[split]} examples "
                f"of {self.facts.name} {split}, got {known}; continue the run first"
            )
        return self._labels[split]

    def known(
        self, split: str, layer: int, module: str, rates: Sequence[Any]
    ) -> np.ndarray:
        """Returns which answers are stored.

        Args:
            split: ``"validation"`` or ``"test"``.
            layer: Number of the pruned layer.
            module: The pruned module.
            rates: Clipping rates or ranks.

        Returns:
            Booleans, ``(rates, examples)``.
        """
        self._catch_up()
        absent = np.zeros(self.facts.sizes[split], bool)
        places = [(split, layer, module, key_of(rate)) for rate in rates]
        return np.stack([self._known.get(place, absent) for place in places])

    def scores(
        self, split: str, layer: int, module: str, rates: Sequence[Any]
    ) -> np.ndarray:
        """Score of every option, NaN where the answer is not stored.

        Args:
            split: ``"validation"`` or ``"test"``.
            layer: Number of the pruned layer.
            module: The pruned module.
            rates: Clipping rates or ranks.

        Returns:
            The scores, ``(rates, examples, options)``.
        """
        self._catch_up()
        shape = (self.facts.sizes[split], len(self.facts.labels))
        absent = np.full(shape, np.nan)
        places = [(split, layer, module, key_of(rate)) for rate in rates]
        return np.stack([self._scores.get(place, absent) for place in places])

    def correct(
        self,
        split: str,
        layer: int,
        module: str,
        rates: Sequence[Any],
        examples: Sequence[int] | np.ndarray | None = None,
        places: Sequence[int] | None = None,
    ) -> np.ndarray:
        """Which answers are right; an answer with a NaN score is wrong.

        Args:
            split: ``"validation"`` or ``"test"``.
            layer: Number of the pruned layer.
            module: The pruned module.
            rates: Clipping rates or ranks.
            examples: Numbers of the examples; all if ``None``.
            places: Which of the rates are asked for; all if ``None``.

        Returns:
            Booleans, ``(rates, examples)``.
        """
        rates = rates if places is None else [rates[place] for place in places]
        total = self.facts.sizes[split]
        chosen = np.arange(total) if examples is None else np.asarray(examples)
        known = self.known(split, layer, module, rates)[:, chosen]
        if not known.all():
            raise ValueError(
                f"records: expected {known.size} answers of {self.facts.name} {split}, "
                f"{module} of layer {layer}, got {int(known.sum())}; continue the "
                "run first"
            )
        scores = self.scores(split, layer, module, rates)[:, chosen]
        if examples is None:
            self._check_answered(split, rates, scores)
        right = predict(scores) == self._labels[split][chosen][None]
        if self.facts.ties_are_wrong:
            best = scores.max(axis=-1, keepdims=True)
            right &= (scores == best).sum(axis=-1) == 1
        return right

    def _check_answered(self, split, rates, scores) -> None:
        """Raises if all scores of the unpruned model are NaN."""
        for rate, rows in zip(rates, scores, strict=True):
            if rate == 0 and len(rows) and np.isnan(rows).any(axis=-1).all():
                raise ValueError(
                    f"scores: expected numbers of the unpruned model, got NaN for all "
                    f"{len(rows)} examples of {self.facts.name} {split}; is the range "
                    "of the dtype too small?"
                )

    def accuracy(self, correct: np.ndarray) -> float:
        """Accuracy with the denominator of the task.

        Args:
            correct: Which answers are right.

        Returns:
            The accuracy.
        """
        total = denominator_of(len(correct), self.facts.denominator)
        return float(correct.sum() / total)

    def add(
        self,
        split: str,
        rates: Sequence[Any],
        chunks: Iterable[GridChunk],
        labels: np.ndarray,
    ) -> None:
        """Stores all of the given answers, or none if one is invalid.

        Args:
            split: ``"validation"`` or ``"test"``.
            rates: The clipping rates or ranks of the chunks.
            chunks: The scores.
            labels: Number of the right option of every example of the split.
        """
        chunks = list(chunks)
        new = self.file is None or self.file.add(
            self._model, self._answers(split, rates, chunks, labels)
        )
        for chunk in chunks:
            self.added += chunk.scores.shape[0] * chunk.scores.shape[1]
            for rate, scores in zip(rates, chunk.scores, strict=True):
                place = (split, chunk.layer, chunk.module, key_of(rate))
                self._put(place, chunk.examples, scores, labels[chunk.examples])

        if not new:  # another process was first, and the file has its numbers
            self._version = -1

    @property
    def _model(self) -> dict[str, Any]:
        return {**self.fields, "task": self.facts.name, "digest": self.facts.digest}

    def _answers(self, split, rates, chunks, labels) -> Iterator[Answer]:
        for chunk in chunks:
            for rate, rows in zip(rates, chunk.scores, strict=True):
                place = split, chunk.layer, chunk.module, key_of(rate)
                for example, scores in zip(chunk.examples.tolist(), rows, strict=True):
                    yield Answer(*place, example, int(labels[example]), scores)

    def _put(self, place, examples, scores, labels):
        size = self.facts.sizes[place[0]]
        if place not in self._known:
            self._known[place] = np.zeros(size, bool)
            self._scores[place] = np.full((size, len(self.facts.labels)), np.nan)
        self._labels.setdefault(place[0], np.full(size, -1))[examples] = labels
        self._known[place][examples] = True
        self._scores[place][examples] = scores

    def _catch_up(self) -> None:
        """Reads the file if others have written to it."""
        if self.file is None or self._version == self.file.version:
            return
        self._version = self.file.version
        found: dict[tuple, list[tuple]] = {}
        for one in self.file.of(self._model):
            found.setdefault(one[:4], []).append(one[4:])
        for place, rows in found.items():
            examples, labels, scores = map(list, zip(*rows, strict=True))
            self._put(place, examples, np.stack(scores), labels)
