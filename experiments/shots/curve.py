"""Means over demonstrations and questions, and how far they can be trusted."""

from typing import NamedTuple

import numpy as np
import scipy.stats

from icltheory.bridge.statistics import summarise_replicates


class Estimate(NamedTuple):
    """A mean with its standard error and interval.

    Attributes:
        mean: The mean.
        standard_error: Its standard error, over demonstrations and questions.
        low: Lower end of the interval.
        high: Upper end.
    """

    mean: float
    standard_error: float
    low: float
    high: float


def estimate(values: np.ndarray, same_questions: bool, level: float) -> Estimate:
    r"""Mean over draws of demonstrations and over questions.

    .. math:: s^2 = \frac{\operatorname{var}_s (\bar a_{s \cdot})}{S}
        + \frac{\operatorname{var}_i (\bar a_{\cdot i})}{n}

    for S draws that share n questions: draws and questions are crossed, and the part
    that belongs to both is counted twice, so that the interval is wide rather than
    narrow. It is :math:`\bar a \pm t_\nu s` with Satterthwaite's degrees of freedom.
    Where each draw has questions of its own the second term is left out. One draw says
    nothing about the choice of demonstrations: then only the questions count.

    Args:
        values: Right or wrong, or a difference, ``(draws, questions)``.
        same_questions: Whether all draws share the questions.
        level: Level of the interval.
    """
    values = np.asarray(values, float)
    parts = [values.mean(axis=1)]
    if same_questions or len(values) == 1:
        parts.append(values.mean(axis=0))
    parts = [part for part in parts if len(part) > 1]
    squares = np.array([summarise_replicates(p).standard_error ** 2 for p in parts])
    mean, square = float(values.mean()), squares.sum()
    half = 0.0
    if square > 0:
        freedom = square**2 / sum(
            v**2 / (len(p) - 1) for v, p in zip(squares, parts, strict=True)
        )
        half = float(scipy.stats.t.ppf((1 + level) / 2, freedom) * np.sqrt(square))
    return Estimate(mean, float(np.sqrt(square)), mean - half, mean + half)


class Curve(NamedTuple):
    """The in-context curve of one task and one model.

    Attributes:
        shots: One estimate for each number of demonstrations.
        rise: Most demonstrations minus the fewest, paired by draw and question.
        draws: Accuracy of each draw and order, ``(draws * orders, shots)``.
    """

    shots: tuple[Estimate, ...]
    rise: Estimate
    draws: np.ndarray


def curve(right: np.ndarray, same_questions: bool, level: float) -> Curve:
    """The curve of answers ``(shots, seeds, orders, questions)``.

    Orders of one draw are no independent draws: they are averaged first.
    """
    means = np.mean(right, axis=2)
    found = (estimate(each, same_questions, level) for each in means)
    return Curve(
        tuple(e._replace(low=max(e.low, 0.0), high=min(e.high, 1.0)) for e in found),
        estimate(means[-1] - means[0], same_questions, level),
        right.mean(axis=3).reshape(len(right), -1).T,
    )


def differences(
    before: np.ndarray, after: np.ndarray, same_questions: bool, level: float
) -> tuple[Estimate, ...]:
    """After minus before for each number of demonstrations, paired."""
    each = np.mean(after.astype(float) - before, axis=2)
    return tuple(estimate(values, same_questions, level) for values in each)
