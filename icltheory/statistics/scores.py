"""The majority-class baseline."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["MajorityBaseline", "majority_baseline"]


class MajorityBaseline(NamedTuple):
    """The most frequent class and its share of the examples.

    Args:
        label: Number of that class; the smallest of several.
        name: Its name.
        share: Its share of the examples.
        count: How many examples it has.
    """

    label: int
    name: str
    share: float
    count: int


def majority_baseline(
    labels: Any, names: Sequence[str] | None = None
) -> MajorityBaseline:
    """Accuracy of always answering the most frequent class.

    Args:
        labels: Class of each example, at least 0.
        names: Name of each class; their numbers if not given.

    Returns:
        The most frequent class and its share.

    Example:
        >>> majority_baseline([1, 1, 0], ("no", "yes")).name
        'yes'
    """
    truth = np.asarray(labels)
    if not np.issubdtype(truth.dtype, np.integer) or not truth.size:
        raise ValueError(
            "labels: expected whole numbers, at least one, "
            f"got {truth.dtype} of shape {truth.shape}"
        )
    if truth.min() < 0:
        raise ValueError(f"labels: expected numbers >= 0, got {truth.min()}")
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
