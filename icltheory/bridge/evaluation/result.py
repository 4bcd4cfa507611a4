"""Result of an evaluation, and the one that does a prompt at a time."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_choice, check_shape, wrong
from icltheory.bridge.evaluation.prompts import tokenize
from icltheory.bridge.model import check_weights
from icltheory.bridge.tasks import LanguageTask
from icltheory.bridge.tasks.scorings import SCORINGS, reference_task


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    r"""Scores and predictions of a model on the examples of a split.

    .. math:: \mathrm{accuracy} = \frac{1}{d} \sum_{i=1}^n [\hat y_i = y_i] , \qquad
        \hat y_i = \min \arg\max_k s_{ik} , \qquad d \in \{n,\, n - 1\}

    Equal best scores: the first of them is the prediction, which is wrong where the
    task says so, and the example is counted in ``num_ties``. A score that is NaN: the
    prediction is -1, which is wrong whatever the label, and the example is counted in
    ``num_nan``. Where that is so of all examples, the model answered nothing, and the
    accuracy is NaN.

    Args:
        scores: Score of every option of every example, ``(n, K)``.
        labels: Number of the right option of each example.

    Source: Yao et al. (2024), section 4.
    """

    accuracy: float
    num_examples: int
    predictions: np.ndarray
    scores: np.ndarray
    num_ties: int
    num_nan: int
    labels: np.ndarray
    correct: np.ndarray
    denominator: str = "n"

    @property
    def num_correct(self) -> int:
        """Number of right answers."""
        return int(self.correct.sum())

    def __repr__(self) -> str:
        counts = ("num_examples", "num_ties", "num_nan")
        counts = ", ".join(f"{name}={getattr(self, name)}" for name in counts)
        return f"Evaluation(accuracy={self.accuracy:.4f}, {counts})"


def predict(scores: np.ndarray) -> np.ndarray:
    """Index of each example's best option, the first of equal ones; -1 for NaN.

    Options are along the last axis.

    Example:
        >>> predict(np.array([[0.0, 2.0], [1.0, 1.0], [0.0, np.nan]])).tolist()
        [1, 0, -1]
    """
    scores = np.asarray(scores)
    best = np.argmax(scores, axis=-1)
    return np.where(np.isnan(scores).any(axis=-1), -1, best)


def denominator_of(count: int, denominator: str) -> int:
    """Returns what a count of right answers is divided by; raises if it is 0."""
    less = denominator == "n-1"
    if count - less < 1:
        wanted = f"at least {1 + less} examples for the denominator {denominator}"
        raise wrong("labels", wanted, count)
    return count - less


def evaluation_of(
    scores: np.ndarray,
    labels: np.ndarray,
    denominator: str = "n",
    *,
    ties_are_wrong: bool = False,
) -> Evaluation:
    """Computes the evaluation from scores ``(n, K)`` and the numbers of right options.

    Example:
        >>> scores = np.array([[0.0, 2.0], [1.0, 1.0], [0.0, np.nan]])
        >>> evaluation_of(scores, np.array([1, 0, 1]))
        Evaluation(accuracy=0.6667, num_examples=3, num_ties=1, num_nan=1)
    """
    check_choice("denominator", denominator, ("n", "n-1"))
    scores, labels = np.asarray(scores), np.asarray(labels)
    check_shape("scores", scores, (len(labels), "K"))
    total = denominator_of(len(labels), denominator)
    predictions, nan = predict(scores), np.isnan(scores).any(axis=1)
    tied = (scores == scores.max(axis=1, keepdims=True)).sum(axis=1) > 1
    correct = (predictions == labels) & ~(tied & ties_are_wrong)
    return Evaluation(
        accuracy=math.nan if nan.all() else float(correct.sum() / total),
        num_examples=len(labels),
        predictions=predictions,
        scores=scores,
        num_ties=int((tied & ~nan).sum()),
        num_nan=int(nan.sum()),
        labels=labels,
        correct=correct,
        denominator=denominator,
    )


def evaluate_naive(
    model: Any, task: LanguageTask, split: str = "validation", shots: int | None = None
) -> Evaluation:
    """Evaluates a split one prompt at a time, with all logits at all tokens.

    It is the reference for tests and timings of :func:`~icltheory.bridge.evaluate`.
    Every prompt length is compiled.

    Source: Yao et al. (2024), section 4.
    """
    scores = _scores(model, task, split, shots)
    if np.isnan(scores).any():
        check_weights(model, tokens=False)
    return evaluation_of_task(task, split, scores)


def evaluation_of_task(
    task: LanguageTask, split: str, scores: np.ndarray, chosen: Any = slice(None)
) -> Evaluation:
    """The evaluation of some examples of a split, in which the profile has its say.

    In the authors' code a tie of label tokens is wrong, by strict comparisons.
    """
    labels = np.array([example.label for example in task.examples(split)])[chosen]
    strict = task.profile == "authors_code" and task.scoring == "label_token"
    return evaluation_of(scores, labels, task.denominator, ties_are_wrong=strict)


def _scores(model, task, split, shots):
    prompts, found = tokenize(model, task, split, shots), []
    for row, start in zip(prompts.rows, prompts.starts, strict=True):
        ids = prompts.prefix + row
        logits = model.logits(np.array([ids]))[0]
        found.append(np.asarray(_measure(prompts, logits, ids, start)))
    measures = np.stack(found).reshape(prompts.num_examples, prompts.num_options)
    scores = prompts.scores(measures, np.arange(prompts.num_examples))
    combine = SCORINGS[task.scoring].combine
    if combine is None:
        return scores
    references, numbers = reference_task(task, split, shots)
    return combine(scores, _scores(model, references, "validation", None)[numbers])


def _measure(prompts, logits, ids, start):
    if prompts.measure == "label_token":
        return logits[-1, np.array(prompts.label_ids)]
    if prompts.measure == "mean_logit":
        return jnp.mean(logits)
    first = len(prompts.prefix) + start
    logp = jax.nn.log_softmax(logits[first - 1 : -1], axis=-1)
    return jnp.sum(logp[np.arange(len(ids) - first), np.array(ids[first:])])
