"""Language models on classification tasks: which predictor do their answers follow?"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import numpy as np
import scipy.special

from icltheory._checks import check_shape
from icltheory._core import Record
from icltheory.bridge import Evaluator, LanguageModel
from icltheory.bridge.tasks import LanguageTask
from icltheory.microscope.intervals import SkewedEstimate, mixture_weights

Scorer = Callable[[LanguageTask], Any]


class LabelCandidate(Record):
    """A simple predictor of labels, compared with the model on the same prompts.

    Args:
        distance: E |p - q|^2 of the two distributions over labels.
        agreement: Share of questions with the same likeliest label.
        weight: Weight in the best mixture.
    """

    name: str = eqx.field(static=True)
    distance: SkewedEstimate
    agreement: SkewedEstimate
    weight: float


class LabelIdentification(Record):
    """What a language model's answers follow, and how they respond to labels.

    Args:
        probabilities: The model's distribution over the labels, ``(n, K)``.
        responses: How much the label of each demonstration raises the probability of
            that label, ``(n, D)``; empty where no demonstration was relabelled.
        candidates: From the closest to the farthest.
    """

    probabilities: Any
    responses: Any
    candidates: tuple[LabelCandidate, ...]
    num_questions: int = eqx.field(static=True)

    @property
    def mean_responses(self) -> SkewedEstimate:
        """Mean response to each demonstration, in their order, with its error."""
        return SkewedEstimate.of(self.responses)

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per candidate."""
        return [
            {
                "candidate": c.name,
                "distance": float(c.distance.mean),
                "interval": tuple(map(float, c.distance.interval())),
                "agreement": float(c.agreement.mean),
                "weight": c.weight,
            }
            for c in self.candidates
        ]

    @property
    def summary(self) -> str:
        """The closest candidate, and how much the labels of demonstrations matter."""
        best = self.candidates[0]
        text = (
            f"On {self.num_questions} questions the model is closest to {best.name} "
            f"(distance {best.distance.mean:.3f}, same label on "
            f"{100 * best.agreement.mean:.0f} %)."
        )
        if not np.size(self.responses):
            return text
        means = np.asarray(self.mean_responses.mean)
        return text + (
            " Showing a label raises its probability by "
            f"{means.mean():.3f} on average over the demonstrations, by "
            f"{means[-1]:.3f} for the last one."
        )

    def __str__(self) -> str:
        return self.summary


def identify_labels(
    model: LanguageModel | Scorer,
    task: LanguageTask,
    *,
    split: str = "test",
    relabel: bool = True,
) -> LabelIdentification:
    r"""Compares a language model with simple predictors of the demonstrations' labels.

    .. math:: p(c) = \mathrm{softmax}(s)_c , \qquad
        r_i = \frac{1}{K - 1} \sum_{c \ne y_i} \bigl(p(y_i) - p^{i \to c}(y_i)\bigr) ,

    where p^{i -> c} is the answer after demonstration i got the label c: the discrete
    counterpart of df/dy. The errors of distances are those over questions, for these
    demonstrations. Relabelling takes D (K - 1) more evaluations.

    Args:
        model: A language model, or a function of a task that returns the scores of
            every option for every question of the split, ``(n, K)``.
        task: A classification task.

    Example:
        >>> from icltheory.bridge.tasks import Example, PromptTemplate
        >>> examples = [Example({"text": t}, k, 0) for k, t in enumerate(["no", "yes"])]
        >>> shown, template = tuple(examples), PromptTemplate("{text}", "{text}")
        >>> task = LanguageTask("t", "paper", "classification", ("bad", "good"),
        ...     shown, (), shown, template)
        >>> rule = label_rules()["nearest neighbour"]
        >>> found = identify_labels(lambda task: np.log(rule(task, "test")), task)
        >>> found.candidates[0].name
        'nearest neighbour'

    Source: Min et al. (2022), for demonstrations with other labels.
    """
    if task.kind != "classification":
        raise ValueError(f"task: expected a classification task, got a {task.kind}")
    if not task.demonstrations or not task.examples(split):
        raise ValueError("task: expected demonstrations and questions, got none")
    scorer = _scorer(model, split)
    p = _probabilities(scorer, task, split)
    given = {name: rule(task, split) for name, rule in label_rules().items()}
    errors = {name: q - p for name, q in given.items()}
    weights = mixture_weights(np.stack([e.ravel() for e in errors.values()], axis=1))
    found = [
        LabelCandidate(
            name,
            SkewedEstimate.of(np.sum(errors[name] ** 2, axis=1)),
            SkewedEstimate.of((q.argmax(axis=1) == p.argmax(axis=1)).astype(float)),
            float(weight),
        )
        for (name, q), weight in zip(given.items(), weights, strict=True)
    ]
    responses = np.zeros((len(p), 0))
    if relabel:
        responses = _responses(scorer, task, split, p)
    found.sort(key=lambda c: float(c.distance.mean))
    return LabelIdentification(p, responses, tuple(found), len(p))


def label_rules() -> dict[str, Callable[[LanguageTask, str], np.ndarray]]:
    """The simple predictors by name: distributions over labels, ``(n, K)``, of a split.

    Uniform; the shares of the demonstrations' labels; the label of the last
    demonstration; that of the demonstration with the most similar words (Jaccard); and
    multinomial naive Bayes on words. Shares and words are smoothed by one count, and a
    copied label has probability (1 + 1/K) / 2.

    Example:
        >>> list(label_rules())
        ['uniform', 'label prior', 'copy the last', 'nearest neighbour', 'naive Bayes']

    Source: Zhao et al. (2021), for label prior and recency; McCallum and Nigam (1998).
    """
    return {
        "uniform": lambda task, split: _rows(task, split, np.ones(len(task.labels))),
        "label prior": lambda task, split: _rows(task, split, _prior(task)),
        "copy the last": lambda task, split: _rows(
            task, split, _copied(task, task.demonstrations[-1].label)
        ),
        "nearest neighbour": _nearest,
        "naive Bayes": _naive_bayes,
    }


def _scorer(model: LanguageModel | Scorer, split: str) -> Scorer:
    if not isinstance(model, LanguageModel):
        return model
    return lambda task: Evaluator(model, task).evaluate(split, [()])[0].scores


def _probabilities(scorer: Scorer, task: LanguageTask, split: str) -> np.ndarray:
    scores = np.asarray(scorer(task), float)
    expected = len(task.examples(split)), len(task.labels)
    check_shape("what the model returns", scores, expected)
    if np.isnan(scores).any():
        raise ValueError("what the model returns: expected numbers, got NaN")
    return scipy.special.softmax(scores, axis=1)


def _responses(scorer, task, split, p) -> np.ndarray:
    others = len(task.labels) - 1
    found = np.zeros((len(p), len(task.demonstrations)))
    for i, example in enumerate(task.demonstrations):
        for c in set(range(len(task.labels))) - {example.label}:
            shown = list(task.demonstrations)
            shown[i] = example._replace(label=c)
            moved = dataclasses.replace(task, demonstrations=tuple(shown))
            q = _probabilities(scorer, moved, split)
            found[:, i] += (p[:, example.label] - q[:, example.label]) / others
    return found


def _rows(task: LanguageTask, split: str, counts: np.ndarray) -> np.ndarray:
    return np.tile(counts / counts.sum(), (len(task.examples(split)), 1))


def _prior(task: LanguageTask) -> np.ndarray:
    return 1.0 + np.asarray(task.class_counts("demonstrations"))


def _copied(task: LanguageTask, label: int) -> np.ndarray:
    counts = np.full(len(task.labels), 1 / len(task.labels))
    counts[label] += 1
    return counts / 2


def _words(example: Any) -> list[str]:
    return re.findall(r"\w+", " ".join(example.fields.values()).lower())


def _nearest(task: LanguageTask, split: str) -> np.ndarray:
    shown = [(set(_words(d)), d.label) for d in task.demonstrations]

    def label(example):
        asked = set(_words(example))
        shares = [len(asked & w) / max(len(asked | w), 1) for w, _ in shown]
        return shown[int(np.argmax(shares))][1]

    return np.stack([_copied(task, label(e)) for e in task.examples(split)])


def _naive_bayes(task: LanguageTask, split: str) -> np.ndarray:
    texts: Sequence[list[str]] = [_words(d) for d in task.demonstrations]
    vocabulary = {word: place for place, word in enumerate(sorted({*sum(texts, [])}))}
    counts = np.ones((len(task.labels), len(vocabulary)))
    for words, demonstration in zip(texts, task.demonstrations, strict=True):
        for word in words:
            counts[demonstration.label, vocabulary[word]] += 1
    logs = np.log(counts / counts.sum(axis=1, keepdims=True))
    prior = np.log(_prior(task))

    def scores(example):
        known = [vocabulary[word] for word in _words(example) if word in vocabulary]
        return prior + logs[:, known].sum(axis=1)

    return scipy.special.softmax([scores(e) for e in task.examples(split)], axis=1)
