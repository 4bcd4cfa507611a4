"""Means over demonstrations and questions with their intervals."""

from typing import NamedTuple

import numpy as np

from icltheory.statistics import crossed_estimate


class Point(NamedTuple):
    """A mean with its standard error and the ends of its interval."""

    mean: float
    standard_error: float
    low: float
    high: float


def point(values: np.ndarray, same_questions: bool, level: float) -> Point:
    """Mean of a table ``(draws, questions)``, whose draws may share their questions."""
    found = crossed_estimate(values, same_columns=same_questions)
    return Point(*map(float, (*found, *found.interval(level))))


class AccuracyCurve(NamedTuple):
    """Accuracy of one model on one task by number of demonstrations.

    Attributes:
        shots: One point for each number of demonstrations.
        rise: Most demonstrations minus the fewest, paired by draw and question.
        draws: Accuracy of each draw and order, ``(draws * orders, shots)``.
    """

    shots: tuple[Point, ...]
    rise: Point
    draws: np.ndarray


def curve(right: np.ndarray, same_questions: bool, level: float) -> AccuracyCurve:
    """Computes the curve from answers ``(shots, seeds, orders, questions)``.

    Orders of one draw are no independent draws: they are averaged first.
    """
    means = np.mean(right, axis=2)
    found = (point(each, same_questions, level) for each in means)
    return AccuracyCurve(
        tuple(e._replace(low=max(e.low, 0.0), high=min(e.high, 1.0)) for e in found),
        point(means[-1] - means[0], same_questions, level),
        right.mean(axis=3).reshape(len(right), -1).T,
    )


def differences(
    before: np.ndarray, after: np.ndarray, same_questions: bool, level: float
) -> tuple[Point, ...]:
    """Paired difference, after minus before, for each number of demonstrations."""
    each = np.mean(after.astype(float) - before, axis=2)
    return tuple(point(values, same_questions, level) for values in each)
