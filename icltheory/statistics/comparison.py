"""Comparison of two models on the same examples: difference, interval and tests."""

import dataclasses
from typing import Any

import numpy as np

from icltheory._checks import check_booleans, check_choice, check_open_unit, check_shape
from icltheory.statistics.estimates import Interval
from icltheory.statistics.intervals import bootstrap_interval, proportion_interval
from icltheory.statistics.mcnemar import (
    exact_mcnemar,
    score_mcnemar,
    smallest_p_value,
)
from icltheory.statistics.paired import paired_interval

__all__ = ["Comparison", "compare"]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Result of comparing two models on the same examples by :func:`compare`.

    Args:
        before: Accuracy of the first.
        after: Accuracy of the second.
        difference: ``after - before``.
        interval: Interval of the difference.
        p_value: Exact two-sided p-value of no difference; the verdict rests on it.
        score_p_value: p-value of the score test, below ``1 - level`` exactly where a
            score interval excludes 0.
        discordant: How many examples were gained and how many lost.
        num_examples: How many examples there are.
        level: Confidence level of the interval and of the verdict.
        method: How the interval was made.
        draws: Number of bootstrap samples; 0 if it was made without.
        could_be_chance: Whether ``p_value > 1 - level``.
        smallest_p_value: The smallest p-value that so many discordant examples allow.

    Source: McNemar (1947); Tango (1998); Efron (1987).
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
    method: str
    draws: int
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
        p = [f"= {p:.3g}" if p >= 1e-16 else "< 1e-16" for p in self._p_values()]
        told = f"score p {p[0]}, exact p {p[1]}" if len(p) > 1 else f"p {p[0]}"
        return (
            f"{self.before:.4f} -> {self.after:.4f}, difference {self.difference:+.4f} "
            f"({100 * self.level:g} % interval {self.interval.low:+.4f} to "
            f"{self.interval.high:+.4f}; {gained} gained, {lost} lost of "
            f"{self.num_examples}; {told}: {self.verdict})"
        )

    def _p_values(self) -> list[float]:
        """p-values to print, first the one that matches a score interval."""
        score = [self.score_p_value] if self.method == "score" else []
        return [*score, self.p_value]


def compare(
    before: Any,
    after: Any,
    *,
    level: float | int = 0.95,
    method: str = "score",
    draws: int = 10_000,
    seed: int = 0,
) -> Comparison:
    r"""Compares two models by which examples each answers correctly.

    .. math:: \hat\delta = (g - l) / n , \qquad
        p = \min\{1,\; 2 P(X \ge \max(g, l))\}, \quad
        X \sim \mathrm{Binomial}(g + l, 1/2)

    for g examples gained and l lost of n. The interval is the score interval of
    :func:`paired_interval`, which covers at its level also where few examples are
    discordant; or a bootstrap over examples (``"bca"``, ``"percentile"``), which then
    is too narrow; or ``"conditional"`` on the number of discordant examples,
    :math:`(g + l) (2 \theta - 1) / n` with :math:`\theta` in the Clopper-Pearson
    interval of g of g + l, which covers far below its level where many are. Where
    :math:`g + l = 0` the conditional interval is :math:`\pm (1 - (\alpha / 2)^{1 / n})`
    at the level :math:`1 - \alpha`. It then also takes the place of the bootstrap,
    which would be a point. Where all examples changed alike, the bootstrap is a point.

    There are two p-values. That of :func:`score_mcnemar` fits the score interval: one
    excludes 0 where the other is below :math:`\alpha`. That of :func:`exact_mcnemar`
    decides the verdict, because it keeps its level whatever the number of discordant
    examples. The exact test is the stricter one at usual levels: of five examples that
    are all gains the score test says 0.025 and the exact test 0.063, and the verdict is
    that so few cannot tell.

    Errors that are numbers are compared by ``Estimate.of(after - before)``, which has
    an interval and a p-value.

    None of them knows how the second model was chosen: compare on examples that took
    no part in the choice. A comparison of a NaN prediction with its label is ``False``,
    so that the prediction counts as wrong.

    Args:
        before: Whether the first model is right, one boolean an example.
        after: The same for the second, in the same order.
        level: Confidence level :math:`1 - \alpha`.
        method: ``"score"``, ``"bca"``, ``"percentile"`` or ``"conditional"``.
        draws: How many bootstrap samples, where there are any.
        seed: Fixes the samples.

    Returns:
        The comparison; printed it is one line.

    Example:
        >>> print(compare([False] * 5 + [True] * 5, [True] * 10))
        0.5000 -> 1.0000, difference +0.5000 (95 % interval +0.0837 to +0.7634;
        5 gained, 0 lost of 10; score p = 0.0253, exact p = 0.0625: cannot tell)

    Source: McNemar (1947); Tango (1998); Efron (1987).
    """
    check_choice("method", method, ("score", "bca", "percentile", "conditional"))
    check_open_unit("level", level)
    first, second = check_booleans("before", before), check_booleans("after", after)
    check_shape("after", second, first.shape)
    gained, lost = int(np.sum(second & ~first)), int(np.sum(first & ~second))
    total = first.size
    if method in ("bca", "percentile") and gained + lost == 0:
        method = "conditional"
    if method == "score":
        interval = paired_interval(gained, lost, total, level=level)
    elif method == "conditional":
        interval = _conditional_interval(gained, lost, total, level)
    else:
        change = second.astype(np.int8) - first.astype(np.int8)
        options = {"level": level, "draws": draws, "method": method, "seed": seed}
        interval = bootstrap_interval(change, **options)
    p_value = exact_mcnemar(gained, lost)
    return Comparison(
        before=float(first.mean()),
        after=float(second.mean()),
        difference=(gained - lost) / total,
        interval=interval,
        p_value=p_value,
        score_p_value=score_mcnemar(gained, lost),
        discordant=(gained, lost),
        num_examples=total,
        level=level,
        method=method,
        draws=draws if method in ("bca", "percentile") else 0,
        could_be_chance=p_value > 1 - level,
        smallest_p_value=smallest_p_value(gained + lost),
    )


def _conditional_interval(gained: int, lost: int, total: int, level: float) -> Interval:
    exact, changed = "clopper_pearson", gained + lost
    if changed == 0:
        most = proportion_interval(0, total, level=level, method=exact).high
        return Interval(-most, most)
    ends = proportion_interval(gained, changed, level=level, method=exact)
    return Interval(*(changed * (2 * end - 1) / total for end in ends))
