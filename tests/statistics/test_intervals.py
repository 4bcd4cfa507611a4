"""Intervals of proportions and of means, against SciPy and statsmodels."""

import numpy as np
import pytest
import scipy.stats

from icltheory.statistics import bootstrap_interval, intervals, proportion_interval
from tests.raising import raises
from tests.statistics.common import flags


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


@pytest.mark.parametrize("method", ["bca", "percentile"])
@pytest.mark.parametrize("sample", ["accuracy", "paired", "skewed"])
def test_the_bootstrap_agrees_with_scipys(sample, method):
    values = {
        "accuracy": flags(90, 30).astype(float),
        "paired": np.repeat([-1.0, 0.0, 1.0], [3, 80, 17]),
        "skewed": np.random.default_rng(1).exponential(size=60),
    }[sample]
    ours, theirs = [], []
    for seed in range(8):
        options = {"draws": 5000, "method": method, "seed": seed}
        ours.append(bootstrap_interval(values, **options))
        assert ours[-1] == bootstrap_interval(values, **options)
        result = scipy.stats.bootstrap(
            (values,),
            np.mean,
            n_resamples=5000,
            method={"bca": "BCa"}.get(method, method),
            rng=np.random.default_rng(100 + seed),
        )
        theirs.append(tuple(result.confidence_interval))
    assert len(set(ours)) > 1
    # Four standard errors; quantiles of few atoms may also move by one of them
    step = 0 if sample == "skewed" else 1 / len(values)
    error = np.hypot(scipy.stats.sem(ours), scipy.stats.sem(theirs))
    distance = np.abs(np.mean(ours, axis=0) - np.mean(theirs, axis=0))
    assert np.all(distance <= 4 * error + step)


def test_bca_corrects_what_the_percentiles_miss():
    """A skewed mean: BCa moves both ends towards the long tail, as it should."""
    values = np.random.default_rng(0).exponential(size=40) ** 2
    plain = bootstrap_interval(values, method="percentile")
    bca = bootstrap_interval(values)
    assert bca.low > plain.low
    assert bca.high > plain.high


def test_chunks_of_the_bootstrap_do_not_matter(monkeypatch):
    many = np.random.default_rng(0).normal(size=50)
    for values in (many, np.round(many)):
        with monkeypatch.context() as patch:
            whole = bootstrap_interval(values, draws=1000)
            patch.setattr(intervals, "_CHUNK", 400)
            assert bootstrap_interval(values, draws=1000) == whole


@pytest.mark.slow
def test_the_bootstrap_covers():
    """Coverage over 600 samples, to four standard errors, of a nominal 90 %."""
    rng, hits, trials = np.random.default_rng(7), 0, 600
    for trial in range(trials):
        change = rng.choice([-1, 0, 1], 200, p=[0.1, 0.7, 0.2])
        low, high = bootstrap_interval(change, level=0.9, draws=400, seed=trial)
        hits += low <= 0.1 <= high
    assert abs(hits / trials - 0.9) < 4 * np.sqrt(0.09 / trials)


def test_equal_values_give_a_point():
    assert bootstrap_interval(np.ones(9)) == (1.0, 1.0)
    np.testing.assert_allclose(bootstrap_interval(np.full(7, 0.1)), 0.1, rtol=1e-12)


def test_bca_of_values_whose_cubes_are_out_of_range():
    values = np.array([1.0, 2, 5, 3, 9])
    for scale in (1e-120, 1e120):
        found, expected = (
            bootstrap_interval(v, draws=500) for v in (scale * values, values)
        )
        np.testing.assert_allclose(found, scale * np.array(expected), rtol=1e-12)


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
    with raises("values: expected at least two in a row, got shape (0,)"):
        bootstrap_interval([])
    with raises("values: expected finite entries"):
        bootstrap_interval([1.0, np.nan])
