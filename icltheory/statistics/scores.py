"""Correct class predictions, and the majority-class baseline."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory._named_errors import named_errors

__all__ = ["MajorityBaseline", "majority_baseline", "mark_correct"]


class MajorityBaseline(NamedTuple):
    """The most frequent class and its share of the examples.

    Args:
        label: Number of that class; the smallest of several.
        name: Its name.
        share: Its share of the examples.
        count: How many examples it has.

    References:
        Verified by ``tests/statistics/test_scores.py``.
    """

    label: int
    name: str
    share: float
    count: int


@named_errors
def mark_correct(predictions: Any, labels: Any) -> np.ndarray:
    """Marks which predictions are right.

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
        Verified by ``tests/statistics/test_scores.py``.
    """
    truth = _classes("labels", labels, least=0)
    if truth.ndim != 1:
        raise ValueError(f"labels: expected one axis, got shape {truth.shape}")
    guess = _classes("predictions", predictions, least=-1)
    if guess.shape[-1:] != truth.shape:
        raise ValueError(
            f"predictions: expected {truth.size} along the last axis, one per label, "
            f"got shape {guess.shape}"
        )
    return guess == truth[(None,) * (guess.ndim - 1)]


@named_errors
def majority_baseline(
    labels: Any, names: Sequence[str] | None = None
) -> MajorityBaseline:
    """Accuracy of always answering the most frequent class.

    Args:
        labels: Class of each example, at least 0.
        names: Name of each class; their numbers if not given.

    Returns:
        The most frequent class and its share.

    Raises:
        ValueError: If there is no label, one is below 0, or a class has no name.

    Example:
        >>> majority_baseline([1, 1, 0], ("no", "yes")).name
        'yes'

    References:
        Verified by ``tests/statistics/test_scores.py``.
    """
    truth = _classes("labels", labels, least=0)
    counts = np.bincount(truth.ravel())
    if names is not None and len(names) < len(counts):
        raise ValueError(
            f"names: expected one for each of {len(counts)} classes, got {len(names)}"
        )
    best = int(np.argmax(counts))
    name = str(best) if names is None else names[best]
    return MajorityBaseline(
        best, name, float(counts[best] / truth.size), int(counts[best])
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
