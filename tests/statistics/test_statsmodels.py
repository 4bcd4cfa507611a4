"""Intervals and tests against statsmodels, which takes seconds to import."""

import itertools

import numpy as np
import pytest

from icltheory.statistics import adjust_holm, exact_mcnemar, proportion_interval

pytestmark = pytest.mark.slow


def test_intervals_of_a_proportion():
    from statsmodels.stats.proportion import proportion_confint

    counts = np.arange(31)
    for ours, theirs in (("wilson", "wilson"), ("clopper_pearson", "beta")):
        found = proportion_interval(counts, 30, level=0.9, method=ours)
        wanted = proportion_confint(counts, 30, alpha=0.1, method=theirs)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-14)


def test_the_exact_test():
    from statsmodels.stats.contingency_tables import mcnemar

    for gained, lost in itertools.product(range(9), repeat=2):
        theirs = mcnemar([[7, gained], [lost, 5]], exact=True)
        assert exact_mcnemar(gained, lost) == pytest.approx(theirs.pvalue, rel=1e-10)


def test_holm():
    from statsmodels.stats.multitest import multipletests

    rng = np.random.default_rng(0)
    for _ in range(5):
        p = rng.integers(0, 12, 8) / 100
        theirs = multipletests(p, 0.05, method="holm")
        np.testing.assert_array_equal(adjust_holm(p) <= 0.05, theirs[0])
        np.testing.assert_allclose(adjust_holm(p), theirs[1], rtol=1e-14)
