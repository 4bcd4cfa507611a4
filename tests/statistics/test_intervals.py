"""Intervals of proportions and of means, against SciPy and statsmodels."""

import numpy as np
import pytest
import scipy.stats

from icltheory.statistics import proportion_interval
from tests.raising import raises


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("total", [1, 5, 56, 277])
def test_intervals_of_an_accuracy_are_scipys(total, level):
    # SciPy finds the exact ends by bisection, to fewer digits
    names = {"wilson": ("wilson", 1e-9), "clopper_pearson": ("exact", 1e-7)}
    for correct in {0, 1, total // 3, total - 1, total}:
        test = scipy.stats.binomtest(correct, total)
        for ours, (theirs, rtol) in names.items():
            found = proportion_interval(correct, total, level=level, method=ours)
            wanted = test.proportion_ci(level, method=theirs)
            np.testing.assert_allclose(found, tuple(wanted), rtol=rtol, atol=1e-14)
        if correct:  # The last of them is exact: at its low end the tail is as stated
            tail = scipy.stats.binom.sf(correct - 1, total, found.low)
            assert tail == pytest.approx((1 - level) / 2, rel=1e-10)


def test_clopper_pearson_covers_at_least_at_its_level():
    total, level = 30, 0.9
    ends = [
        proportion_interval(k, total, level=level, method="clopper_pearson")
        for k in range(total + 1)
    ]
    for share in np.linspace(0.01, 0.99, 99):
        covered = [i.low <= share <= i.high for i in ends]
        chance = scipy.stats.binom.pmf(np.arange(total + 1), total, share)
        assert chance[covered].sum() >= level


def test_many_counts_at_once_are_those_of_each():
    for method in ("wilson", "clopper_pearson"):
        found = proportion_interval([[0, 4], [9, 30]], 30, method=method)
        each = [proportion_interval(k, 30, method=method) for k in (0, 4, 9, 30)]
        np.testing.assert_array_equal(np.reshape(found, (2, 4)).T, each)


def test_bad_input_is_named():
    with raises("successes: expected at most 3, got 4"):
        proportion_interval(4, 3)
    with raises("successes: expected integers >= 0, got -1"):
        proportion_interval(-1, 3)
    with raises("successes: expected integers >= 0, got 0.5"):
        proportion_interval(0.5, 3)
    with raises("level: expected a number between 0 and 1, got 1"):
        proportion_interval(1, 3, level=1)
