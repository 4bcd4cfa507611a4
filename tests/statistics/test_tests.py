"""Comparisons, McNemar's test and Holm, against SciPy."""

import math

import numpy as np
import pytest
import scipy.stats

from icltheory.statistics import adjust_holm, compare, exact_mcnemar, paired_interval
from tests.raising import raises
from tests.statistics.common import flags


@pytest.mark.parametrize("total", [1, 2, 3, 8, 25, 400])
def test_the_exact_test_is_scipys_and_the_sum_over_all_outcomes(total):
    for gained in range(0, total + 1, max(1, total // 9)):
        found = exact_mcnemar(gained, total - gained)
        assert found == pytest.approx(
            scipy.stats.binomtest(gained, total).pvalue, rel=1e-10
        )
        chances = [math.comb(total, x) / 2**total for x in range(total + 1)]
        distance = abs(2 * gained - total)
        beyond = sum(c for x, c in enumerate(chances) if abs(2 * x - total) > distance)
        as_far = sum(c for x, c in enumerate(chances) if abs(2 * x - total) == distance)
        assert found == pytest.approx(beyond + as_far, rel=1e-10)


def test_published_gains_cannot_be_told_from_chance():
    """Net gains of Tables 4 to 8 at best: nothing flipped from right to wrong."""
    assert exact_mcnemar(0, 0) == 1.0
    for net in range(1, 20):
        assert exact_mcnemar(net, 0) == 2.0 ** (1 - net)
    for net in range(1, 12):
        by_lost = [exact_mcnemar(net + lost, lost) for lost in range(30)]
        assert by_lost[0] == pytest.approx(min(by_lost), rel=1e-12)


def test_a_comparison_counts_pair_by_pair():
    rng = np.random.default_rng(0)
    before, after = rng.random((2, 300)) < [[0.5], [0.6]]
    gained = sum(b < a for b, a in zip(before, after, strict=True))
    lost = sum(b > a for b, a in zip(before, after, strict=True))
    found = compare(before, after)
    assert found.discordant == (gained, lost)
    assert found.difference == pytest.approx(after.mean() - before.mean(), abs=1e-15)
    assert (found.before, found.after) == (before.mean(), after.mean())
    assert found.p_value == pytest.approx(
        scipy.stats.binomtest(gained, gained + lost).pvalue, rel=1e-10
    )
    assert found.interval == paired_interval(gained, lost, 300)
    back = compare(after, before)
    assert (back.difference, back.p_value) == (-found.difference, found.p_value)
    both = f"score p = {found.score_p_value:.3g}, exact p = {found.p_value:.3g}"
    assert f"{gained} gained, {lost} lost of 300; {both}" in str(found)
    assert "exact p < 1e-16 decides: better" in str(compare(flags(90, 9), flags(0, 99)))


def test_verdicts():
    def verdict(gained, lost, level=0.95):
        # All wrong, then: gained, lost, and fifty that both get right
        before = flags(gained, lost + 50)
        after = ~before | (np.arange(before.size) >= gained + lost)
        found = compare(before, after, level=level)
        assert found.discordant == (gained, lost)
        assert found.could_be_chance == (found.p_value > 1 - level)
        return found.verdict

    assert verdict(20, 2) == "better"
    assert verdict(2, 20) == "worse"
    assert verdict(7, 5) == "chance"
    assert verdict(5, 0) == verdict(0, 3) == verdict(0, 0) == "cannot tell"
    assert verdict(5, 0, level=0.9) == "better"


def test_no_change_is_no_proof_of_equality():
    same = flags(20, 36)
    z = scipy.stats.norm.ppf(0.975)
    found = compare(same, same)
    most = z**2 / (56 + z**2)
    np.testing.assert_allclose(found.interval, (-most, most), rtol=1e-10)
    assert found.p_value == 1.0


def test_holm_is_its_steps():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = rng.integers(0, 12, (2, 4)) / 100
        rejected, left = set(), sorted(range(8), key=lambda i: p.ravel()[i])
        while left and p.ravel()[left[0]] <= 0.05 / len(left):
            rejected.add(left.pop(0))
        adjusted = adjust_holm(p)
        assert set(np.flatnonzero(adjusted <= 0.05)) == rejected
    assert adjust_holm(np.array(0.04)).shape == ()
    assert adjust_holm([]).shape == (0,)


def test_bad_input_is_named():
    yes = np.ones(4, bool)
    with raises("gained: expected an integer >= 0, got -1"):
        exact_mcnemar(-1, 0)
    with raises("before: expected booleans in 1 dimension(s), at least one, got int"):
        compare([0, 1], yes[:2])
    with raises("after: expected shape (4,), got (3,)"):
        compare(yes, yes[:3])
    with raises("p: expected numbers in [0, 1], got nan"):
        adjust_holm([0.1, np.nan])
