"""The score interval of paired differences: published values, equation, coverage."""

import itertools

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

from icltheory.statistics import (
    exact_mcnemar,
    paired_interval,
    proportion_interval,
    score_mcnemar,
)
from tests.raising import raises

# Counts (gained, lost, total), level and ends: Bentur et al. 2009 and Cavo et al. 2012
# as printed by Fagerland, Lydersen and Laake (2014), and scoreci.mp of PropCIs.
PUBLISHED = [
    ((7, 1, 21), 0.95, (0.026, 0.517), 3),
    ((16, 6, 161), 0.95, (0.0054, 0.1240), 4),
    ((28, 25, 618), 0.9, (-0.0148, 0.0247), 4),
]


@pytest.mark.parametrize(("counts", "level", "ends", "digits"), PUBLISHED)
def test_published_intervals(counts, level, ends, digits):
    found = paired_interval(*counts, level=level)
    assert tuple(round(end, digits) for end in found) == ends


def oracle(gained, lost, total, level):
    """Ends by root finding; the likelihood is maximised by numbers alone."""

    def score(delta):
        def against(q):
            shares = np.array([q + delta, q, 1 - 2 * q - delta])
            counts = np.array([gained, lost, total - gained - lost])
            return -np.sum(scipy.special.xlogy(counts, np.maximum(shares, 1e-300)))

        bounds = max(0.0, -delta), (1 - delta) / 2
        options = {"xatol": 1e-13, "maxiter": 500}
        best = scipy.optimize.minimize_scalar(against, bounds=bounds, options=options)
        variance = (2 * best.x + delta - delta**2) / total
        return ((gained - lost) / total - delta) / variance**0.5

    z, middle = scipy.stats.norm.ppf((1 + level) / 2), (gained - lost) / total
    return [
        scipy.optimize.brentq(lambda d: score(d) - z, -1 + 1e-9, middle),
        scipy.optimize.brentq(lambda d: score(d) + z, middle, 1 - 1e-9),
    ]


@pytest.mark.parametrize(
    "counts", [(3, 0, 64), (9, 4, 64), (2, 60, 128), (0, 7, 30), (40, 41, 100)]
)
def test_ends_solve_the_equation(counts):
    for level in (0.8, 0.99):
        found = paired_interval(*counts, level=level)
        # a maximum is known to the root of the precision, the ends with it
        np.testing.assert_allclose(found, oracle(*counts, level), atol=2e-6)


def test_extreme_counts_have_closed_ends():
    z = scipy.stats.norm.ppf(0.975)
    for n in (1, 5, 64, 10_000):
        most = z**2 / (n + z**2)
        low = (n - z**2) / (n + z**2)
        # 40 halvings of an interval of length 2 at most
        for counts, ends in (((0, 0, n), (-most, most)), ((n, 0, n), (low, 1))):
            np.testing.assert_allclose(paired_interval(*counts), ends, atol=2e-12)


def test_many_counts_at_once_and_exchanged_models():
    gained, lost = np.meshgrid(np.arange(9), np.arange(7))
    found = paired_interval(gained, lost, 40, level=0.9)
    back = paired_interval(lost, gained, 40, level=0.9)
    np.testing.assert_array_equal(found.low, -back.high)
    for i, j in np.ndindex(gained.shape):
        one = paired_interval(gained[i, j], lost[i, j], 40, level=0.9)
        assert one == (found.low[i, j], found.high[i, j])
        assert one.low < (gained[i, j] - lost[i, j]) / 40 < one.high


def test_interval_and_score_test_never_disagree():
    gained, lost = np.mgrid[:16, :16].reshape(2, -1)
    p = np.array([score_mcnemar(*c) for c in zip(gained, lost, strict=True)])
    for total, level in itertools.product((31, 500), (0.9, 0.95, 0.99)):
        low, high = paired_interval(gained, lost, total, level=level)
        np.testing.assert_array_equal((low > 0) | (high < 0), p <= 1 - level)


def test_what_the_exact_test_rejects_the_interval_excludes():
    """At usual levels a mark that is filled after exact tests has no 0 in its bar."""
    for lost, more in itertools.product(range(30), range(1, 30)):
        exact = exact_mcnemar(lost + more, lost)
        score = score_mcnemar(lost + more, lost)
        for level in (0.9, 0.95, 0.99):
            assert exact > 1 - level or score <= 1 - level


def test_the_score_test_is_the_normal_limit():
    assert score_mcnemar(0, 0) == 1.0
    assert score_mcnemar(16, 6) == pytest.approx(0.033006, abs=5e-7)  # as published
    for gained, lost in ((3, 0), (40, 22)):
        square = (gained - lost) ** 2 / (gained + lost)
        assert score_mcnemar(gained, lost) == pytest.approx(
            scipy.stats.chi2.sf(square, 1), rel=1e-12
        )


DROPS = (0, 0.01, 0.03, 0.1, 0.28, 0.5)
GAINS = (0, 0.005, 0.02, 0.05, 0.2)


def covered(total, gain, drop, interval, rng, draws=10_000):
    """Share of simulated tables whose interval has the true difference in it."""
    shares = [gain, gain + drop, 1 - 2 * gain - drop]
    tables, times = np.unique(
        rng.multinomial(total, shares, draws)[:, :2], axis=0, return_counts=True
    )
    low, high = interval(tables[:, 0], tables[:, 1], total)
    return np.sum(times[(low <= -drop) & (-drop <= high)]) / draws


@pytest.mark.slow
@pytest.mark.parametrize("total", [64, 128, 256, 512, 1024])
def test_the_interval_covers_at_its_level(total):
    """93 to 97 %; more where fewer than five discordant examples are expected."""
    rng = np.random.default_rng(total)
    for gain, drop in itertools.product(GAINS, DROPS):
        if 2 * gain + drop <= 1:
            share = covered(total, gain, drop, paired_interval, rng)
            assert share >= 0.93, (gain, drop, share)
            assert share <= 0.97 or total * (2 * gain + drop) < 5, (gain, drop, share)


def test_intervals_given_the_discordant_examples_do_not_cover():
    """The numbers that made this interval necessary, and that coverage can fail."""

    def conditional(gained, lost, total):
        ends = []
        for g, l in zip(gained.tolist(), lost.tolist(), strict=True):
            i = proportion_interval(g, g + l, method="clopper_pearson")
            ends.append([(g + l) * (2 * end - 1) / total for end in i])
        return np.array(ends).T

    rng = np.random.default_rng(0)
    for gain, drop, most in ((0.0075, 0.485, 0.6), (0.02, 0.28, 0.85)):
        assert covered(256, gain, drop, conditional, rng, 2000) < most
        assert 0.93 < covered(256, gain, drop, paired_interval, rng, 2000) < 0.97


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint32, np.uint64])
def test_counts_of_narrow_integers_do_not_overflow(dtype):
    g, l, n = 90, 120, 240
    narrow = dtype(g), dtype(l)
    assert exact_mcnemar(*narrow) == exact_mcnemar(g, l)
    assert score_mcnemar(*narrow) == score_mcnemar(g, l)
    assert paired_interval(*narrow, n) == paired_interval(g, l, n)
    many = paired_interval(np.array([g], dtype), np.array([l], dtype), np.int16(n))
    assert many.low[0] == paired_interval(g, l, n).low
    for method in ("wilson", "clopper_pearson"):
        found = proportion_interval(dtype(g), np.int16(n), method=method)
        assert found == proportion_interval(g, n, method=method)


def test_bad_input_is_named():
    with raises("gained, lost: expected a sum of at most 5, got 6"):
        paired_interval(3, 3, 5)
    with raises("gained: expected integers >= 0, got -1"):
        paired_interval(-1, 0, 5)
    with raises("lost: expected integers >= 0, got 0.5"):
        paired_interval(1, 0.5, 5)
    with raises("level: expected a number between 0 and 1, got 1"):
        paired_interval(1, 0, 5, level=1)
    with raises("lost: expected an integer >= 0, got -1"):
        score_mcnemar(1, -1)
