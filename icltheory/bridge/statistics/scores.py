"""Scores of class predictions, beside the line that knows only the majority class."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory.bridge.statistics._checks import same_shape

__all__ = [
    "MajorityLine",
    "Scores",
    "majority_line",
    "mark_correct",
    "score_predictions",
]


class MajorityLine(NamedTuple):
    """The score of always answering the most frequent class.

    Args:
        label: Number of that class; the smallest of several.
        name: Its name.
        share: Its share of the examples.
        count: How many examples it has.

    References:
        Verified by ``tests/bridge/test_statistics.py``.
    """

    label: int
    name: str
    share: float
    count: int


class Scores(NamedTuple):
    """What :func:`score_predictions` returns.

    Args:
        accuracy: Share of right predictions.
        balanced_accuracy: Mean over the classes of their recall.
        macro_f1: Mean over the classes of their F1.
        majority: The majority-class line.
        num_correct: How many predictions are right.
        num_examples: How many examples there are.
        num_nan: How many have no prediction; they count as wrong.

    References:
        Verified by ``tests/bridge/test_statistics.py``.
    """

    accuracy: float
    balanced_accuracy: float
    macro_f1: float
    majority: MajorityLine
    num_correct: int
    num_examples: int
    num_nan: int


def mark_correct(predictions: Any, labels: Any) -> np.ndarray:
    """Which predictions are right.

    Args:
        predictions: Class numbers, the examples along the last axis; -1 where a score
            was NaN and there is no prediction, which counts as wrong.
        labels: The right class of each example, at least 0.

    Returns:
        Booleans in the shape of the predictions.

    Raises:
        ValueError: If the two are not whole numbers, their lengths differ, a prediction
            is below -1, or a label is below 0.

    Example:
        >>> mark_correct([0, 1, -1], [0, 0, 1]).tolist()
        [True, False, False]

    References:
        Verified by ``tests/bridge/test_statistics.py``.
    """
    truth = _classes("labels", labels, least=0)
    if truth.ndim != 1:
        raise ValueError(f"labels: expected one axis, got shape {truth.shape}")
    guess = _classes("predictions", predictions, least=-1)
    if guess.shape[-1:] != truth.shape:
        raise ValueError(
            f"predictions: expected {truth.size} along the last axis, one a label, "
            f"got shape {guess.shape}"
        )
    return guess == truth[(None,) * (guess.ndim - 1)]


def majority_line(labels: Any, names: Sequence[str] | None = None) -> MajorityLine:
    """The line that a model has to beat before it may be said to have read the input.

    Args:
        labels: Class of each example, at least 0.
        names: Name of each class; their numbers if not given.

    Returns:
        The most frequent class and its share.

    Raises:
        ValueError: If there is no label, one is below 0, or a class has no name.

    Example:
        >>> majority_line([1, 1, 0], ("no", "yes")).name
        'yes'

    References:
        Verified by ``tests/bridge/test_statistics.py``.
    """
    truth = _classes("labels", labels, least=0)
    counts = np.bincount(truth.ravel())
    if names is not None and len(names) < len(counts):
        raise ValueError(
            f"names: expected one for each of {len(counts)} classes, got {len(names)}"
        )
    best = int(np.argmax(counts))
    name = str(best) if names is None else names[best]
    return MajorityLine(best, name, float(counts[best] / truth.size), int(counts[best]))


def score_predictions(
    predictions: Any, labels: Any, names: Sequence[str] | None = None
) -> Scores:
    r"""Accuracy, balanced accuracy and macro F1 beside the majority-class line.

    .. math:: \frac{1}{|T|} \sum_{c \in T} \frac{\mathrm{TP}_c}{n_c} , \qquad
        \frac{1}{|T \cup P|} \sum_{c \in T \cup P}
        \frac{2 \mathrm{TP}_c}{n_c + m_c}

    where T are the classes among the labels and P those predicted, :math:`n_c` examples
    have class c and :math:`m_c` are predicted to. No prediction (-1) is no class: it is
    a miss for its example's class and a false alarm for none.

    Args:
        predictions: Class number of each example; -1 for none.
        labels: The right ones.
        names: Name of each class, for the majority line.

    Returns:
        The scores.

    Raises:
        ValueError: If the two are not whole numbers of the same length, at least one,
            a label is below 0, a prediction below -1, or a class has no name.

    Example:
        >>> found = score_predictions([0, 0, 0, -1], [0, 0, 1, 1])
        >>> found.accuracy, found.balanced_accuracy, found.num_nan
        (0.5, 0.5, 1)

    References:
        Verified by ``tests/bridge/test_statistics.py``.
    """
    guess = _classes("predictions", predictions, least=-1)
    truth = _classes("labels", labels, least=0)
    same_shape("predictions", guess, "labels", truth.shape)
    right = mark_correct(guess, truth)
    size = int(max(truth.max(), guess.max())) + 1
    hits = np.bincount(truth[right], minlength=size)
    having = np.bincount(truth, minlength=size)
    predicted = np.bincount(guess[guess >= 0], minlength=size)
    true, seen = having > 0, having + predicted > 0
    return Scores(
        accuracy=float(right.mean()),
        balanced_accuracy=float(np.mean(hits[true] / having[true])),
        macro_f1=float(np.mean(2 * hits[seen] / (having + predicted)[seen])),
        majority=majority_line(truth, names),
        num_correct=int(right.sum()),
        num_examples=truth.size,
        num_nan=int(np.sum(guess == -1)),
    )


def _classes(name: str, values: Any, *, least: int) -> np.ndarray:
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.integer) or not array.size:
        raise ValueError(
            f"{name}: expected whole numbers, at least one, "
            f"got {array.dtype} of shape {array.shape}"
        )
    if array.min() < least:
        raise ValueError(f"{name}: expected numbers >= {least}, got {array.min()}")
    return array
