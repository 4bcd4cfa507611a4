"""Two models on the same examples: McNemar's tests, comparison, multiple testing."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from icltheory._checks import (
    as_decimals,
    check_booleans,
    check_nonnegative_int,
    check_shape,
    open_unit,
)
from icltheory.statistics.estimates import Interval
from icltheory.statistics.intervals import (
    paired_interval,
)

# Largest count that a float represents exactly.
_MOST = 2**53


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Result of comparing two models on the same examples by :func:`compare`.

    Args:
        before: Accuracy of the first.
        interval: Interval of the difference of the accuracies.
        p_value: Exact two-sided p-value of no difference; the verdict rests on it.
        score_p_value: That of the score test, which fits the score interval.
        discordant: How many examples were gained and how many lost.
        level: Confidence level of the interval and of the verdict.
        smallest_p_value: The smallest p-value that so many discordant examples allow.
    """

    before: float
    after: float
    difference: float
    interval: Interval
    p_value: float
    score_p_value: float
    discordant: tuple[int, int]
    num_examples: int
    level: float
    could_be_chance: bool
    smallest_p_value: float

    @property
    def could_be_significant(self) -> bool:
        """Whether any outcome with as many discordant examples could be significant."""
        return self.smallest_p_value <= 1 - self.level

    @property
    def verdict(self) -> str:
        """One of ``"chance"``, ``"cannot tell"``, ``"better"`` and ``"worse"``."""
        if not self.could_be_significant:
            return "cannot tell"
        if self.could_be_chance:
            return "chance"
        return "better" if self.difference > 0 else "worse"

    def __str__(self) -> str:
        gained, lost = self.discordant
        values = self.score_p_value, self.p_value
        score, exact = (f"= {p:.3g}" if p >= 1e-16 else "< 1e-16" for p in values)
        return (
            f"{self.before:.4f} -> {self.after:.4f}, difference {self.difference:+.4f} "
            f"({100 * self.level:g} % interval {self.interval.low:+.4f} to "
            f"{self.interval.high:+.4f}; {gained} gained, {lost} lost of "
            f"{self.num_examples}; score p {score}, exact p {exact} decides: "
            f"{self.verdict})"
        )


def compare(before: Any, after: Any, *, level: float | int = 0.95) -> Comparison:
    r"""Compares two models by which examples each answers correctly.

    The difference of the accuracies is :math:`(g - l) / n` for g examples gained and l
    lost of n. :func:`exact_mcnemar` decides the verdict, as it keeps its level whatever
    the number of discordant examples; the interval is that of :func:`paired_interval`,
    which :func:`score_mcnemar` fits.

    Neither knows how the second model was chosen: compare on examples that took no part
    in the choice. A prediction that is NaN counts as wrong. Errors that are numbers are
    compared by ``Estimate.of(after - before)``.

    Args:
        before: Whether the first model is right, one boolean per example.
        after: The same for the second, in the same order.

    Example:
        >>> print(compare([False] * 5 + [True] * 5, [True] * 10))
        0.5000 -> 1.0000, difference +0.5000 (95 % interval +0.0837 to +0.7634;
        5 gained, 0 lost of 10; score p = 0.0253, exact p = 0.0625 decides: cannot tell)

    Source: McNemar (1947); Tango (1998).
    """
    open_unit("level", level)
    first, second = check_booleans("before", before), check_booleans("after", after)
    check_shape("after", second, first.shape)
    gained, lost = int(np.sum(second & ~first)), int(np.sum(first & ~second))
    total = first.size
    p_value = exact_mcnemar(gained, lost)
    return Comparison(
        before=float(first.mean()),
        after=float(second.mean()),
        difference=(gained - lost) / total,
        interval=paired_interval(gained, lost, total, level=level),
        p_value=p_value,
        score_p_value=score_mcnemar(gained, lost),
        discordant=(gained, lost),
        num_examples=total,
        level=level,
        could_be_chance=p_value > 1 - level,
        smallest_p_value=exact_mcnemar(gained + lost, 0),
    )


def exact_mcnemar(gained: int | np.integer, lost: int | np.integer) -> float:
    r"""Exact two-sided p-value of McNemar's test, a sign test on what changed.

    .. math:: p = \min\{1,\; 2 P(X \ge \max(g, l))\}, \qquad
        X \sim \mathrm{Binomial}(g + l, 1/2)

    for g examples that became right and l that became wrong; 1 where nothing changed.
    The smallest p-value of m changed examples is ``exact_mcnemar(m, 0)``,
    :math:`\min\{1, 2^{1 - m}\}`; a net change :math:`g - l` alone allows none below
    ``exact_mcnemar(g - l, 0)``.

    Example:
        >>> exact_mcnemar(5, 0), exact_mcnemar(3, 0), exact_mcnemar(7, 7)
        (0.0625, 0.25, 1.0)

    Source: McNemar (1947).
    """
    check_nonnegative_int("gained", gained)
    check_nonnegative_int("lost", lost)
    gained, lost = int(gained), int(lost)
    more, total = max(gained, lost), gained + lost
    if total > _MOST:
        raise ValueError(
            f"gained, lost: expected a sum of at most {_MOST}, got {total}"
        )
    if total == 0:
        return 1.0
    from scipy.stats import binom  # SciPy is slow to import

    return min(1.0, 2.0 * float(binom.sf(more - 1, total, 0.5)))


def score_mcnemar(gained: int | np.integer, lost: int | np.integer) -> float:
    r"""Two-sided p-value of McNemar's score test, consistent with a score interval.

    .. math:: p = 2\, \Phi\Big( - \frac{|g - l|}{\sqrt{g + l}} \Big)

    It is below :math:`\alpha` exactly where :func:`paired_interval` at the level
    :math:`1 - \alpha` excludes 0. Where few examples changed it errs more often than
    :math:`\alpha`: of four that all improved, an outcome of probability 1/8 either way,
    it says 0.046. Where that matters, decide by :func:`exact_mcnemar`.

    Example:
        >>> p = score_mcnemar(16, 6), exact_mcnemar(16, 6)
        >>> print("score {:.4f}, exact {:.4f}".format(*p))
        score 0.0330, exact 0.0525

    Source: McNemar (1947); Fagerland, Lydersen and Laake (2013).
    """
    check_nonnegative_int("gained", gained)
    check_nonnegative_int("lost", lost)
    gained, lost = int(gained), int(lost)
    if gained + lost == 0:
        return 1.0
    z = abs(gained - lost) / (gained + lost) ** 0.5
    return 2 * float(scipy.special.ndtr(-z))


def adjust_holm(p: Any) -> np.ndarray:
    r"""Holm's adjusted p-values: the smallest level at which each test rejects.

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min\{1, (m - j + 1)\, p_{(j)}\}

    All p-values, in any shape, are one family.

    Example:
        >>> adjust_holm([0.01, 0.04, 0.03]).round(3).tolist()
        [0.03, 0.06, 0.06]

    Source: Holm (1979).
    """
    flat = np.ravel(as_decimals("p", p))
    outside = flat[~((flat >= 0) & (flat <= 1))]
    if outside.size:
        raise ValueError(f"p: expected numbers in [0, 1], got {outside[0]}")
    order = np.argsort(flat, kind="stable")
    weighted = np.minimum(1.0, (len(flat) - np.arange(len(flat))) * flat[order])
    adjusted = np.empty(len(flat))
    adjusted[order] = np.maximum.accumulate(weighted)
    return adjusted.reshape(np.shape(p))


class MajorityBaseline(NamedTuple):
    """The most frequent class, the first of several, and its share of the examples."""

    label: int
    name: str
    share: float
    count: int


def majority_baseline(
    labels: Any, names: Sequence[str] | None = None
) -> MajorityBaseline:
    """Accuracy of always answering the most frequent class.

    Classes are numbers from 0; they are called by ``names``, or by their numbers.

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
