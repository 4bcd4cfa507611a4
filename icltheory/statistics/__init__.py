"""Estimates with intervals, paired tests, and multiple testing.

What experiments and language models share: a mean with its standard error
(:class:`Estimate`), intervals of proportions and of curves, and tests of two models on
the same examples.

Stability: stable.
"""

from icltheory.statistics.comparison import (
    Comparison,
    MajorityBaseline,
    adjust_holm,
    compare,
    exact_mcnemar,
    majority_baseline,
    score_mcnemar,
)
from icltheory.statistics.estimates import Estimate, Interval, crossed_estimate
from icltheory.statistics.intervals import (
    curve_interval,
    paired_interval,
    proportion_interval,
)

__all__ = [
    "Comparison",
    "Estimate",
    "Interval",
    "MajorityBaseline",
    "adjust_holm",
    "compare",
    "crossed_estimate",
    "curve_interval",
    "exact_mcnemar",
    "majority_baseline",
    "paired_interval",
    "proportion_interval",
    "score_mcnemar",
]
