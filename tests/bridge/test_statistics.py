import itertools
import math
import re

import numpy as np
import pytest
import scipy.stats

from icltheory.bridge import statistics
from icltheory.bridge.statistics import (
    accuracy_interval,
    adjust_holm,
    bootstrap_interval,
    compare,
    corrected_selection,
    exact_mcnemar,
    holm,
    least_discordant,
    majority_line,
    mark_correct,
    score_predictions,
    smallest_p_value,
    summarise_replicates,
)


def raises(message):
    return pytest.raises(ValueError, match="^" + re.escape(message))


def flags(*counts):
    """Booleans: so many false, so many true, and so on."""
    return np.repeat(np.arange(len(counts)) % 2 == 1, counts)


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
        mid = exact_mcnemar(gained, total - gained, mid_p=True)
        assert mid == pytest.approx(beyond + as_far / 2, rel=1e-10)


def test_the_exact_test_keeps_its_level():
    for total in range(60):
        chances = np.array([math.comb(total, x) for x in range(total + 1)]) / 2.0**total
        p = np.array([exact_mcnemar(x, total - x) for x in range(total + 1)])
        for level in (0.01, 0.05, 0.2):
            assert chances[p <= level].sum() <= level


def test_what_so_many_discordant_examples_allow():
    assert exact_mcnemar(0, 0) == exact_mcnemar(0, 0, mid_p=True) == 1.0
    for count in range(1, 20):
        every = [exact_mcnemar(g, count - g) for g in range(count + 1)]
        assert smallest_p_value(count) == min(every) == 2.0 ** (1 - count)
        assert smallest_p_value(count, mid_p=True) == 2.0**-count
    assert smallest_p_value(0) == 1.0
    assert [least_discordant(level) for level in (0.5, 0.9, 0.95, 0.99)] == [2, 5, 6, 8]


def test_published_gains_cannot_be_told_from_chance():
    """Net gains of Tables 4 to 8 at best: nothing flipped from right to wrong."""
    assert [exact_mcnemar(net, 0) for net in (1, 2, 3, 4, 5)] == [
        1.0,
        0.5,
        0.25,
        0.125,
        0.0625,
    ]
    for net in range(1, 12):
        by_lost = [exact_mcnemar(net + lost, lost) for lost in range(30)]
        assert by_lost[0] == pytest.approx(min(by_lost), rel=1e-12)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("total", [1, 5, 56, 277])
def test_intervals_of_an_accuracy_are_scipys(total, level):
    # SciPy finds the exact ends by bisection, to fewer digits
    names = {"wilson": ("wilson", 1e-9), "clopper_pearson": ("exact", 1e-7)}
    for correct in {0, 1, total // 3, total - 1, total}:
        test = scipy.stats.binomtest(correct, total)
        for ours, (theirs, rtol) in names.items():
            found = accuracy_interval(correct, total, level=level, method=ours)
            wanted = test.proportion_ci(level, method=theirs)
            np.testing.assert_allclose(found, tuple(wanted), rtol=rtol, atol=1e-14)
        if correct:  # The last of them is exact: at its low end the tail is as stated
            tail = scipy.stats.binom.sf(correct - 1, total, found.low)
            assert tail == pytest.approx((1 - level) / 2, rel=1e-10)


def test_clopper_pearson_covers_at_least_at_its_level():
    total, level = 30, 0.9
    ends = [
        accuracy_interval(k, total, level=level, method="clopper_pearson")
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
            patch.setattr(statistics.intervals, "_CHUNK", 400)
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


def test_a_comparison_counts_pair_by_pair():
    rng = np.random.default_rng(0)
    before, after = rng.random((2, 300)) < [[0.5], [0.6]]
    gained = sum(b < a for b, a in zip(before, after, strict=True))
    lost = sum(b > a for b, a in zip(before, after, strict=True))
    found = compare(before, after, draws=5000, seed=2)
    assert found.discordant == (gained, lost)
    assert found.difference == pytest.approx(after.mean() - before.mean(), abs=1e-15)
    assert (found.before, found.after) == (before.mean(), after.mean())
    assert found.p_value == pytest.approx(
        scipy.stats.binomtest(gained, gained + lost).pvalue, rel=1e-10
    )
    change = after.astype(float) - before
    assert found.interval == bootstrap_interval(change, draws=5000, seed=2)
    assert found.draws == 5000
    back = compare(after, before, method="conditional")
    assert (back.difference, back.p_value) == (-found.difference, found.p_value)
    assert f"{gained} gained, {lost} lost of 300; p = {found.p_value:.3g}" in str(found)
    assert "p < 1e-16: better" in str(compare(flags(90, 9), flags(0, 99)))


def test_verdicts():
    def verdict(gained, lost, level=0.95):
        # All wrong, then: gained, lost, and fifty that both get right
        before = flags(gained, lost + 50)
        after = ~before | (np.arange(before.size) >= gained + lost)
        found = compare(before, after, level=level, draws=100)
        assert found.discordant == (gained, lost)
        assert found.could_be_chance == (found.p_value > 1 - level)
        return found.verdict

    assert verdict(20, 2) == "better"
    assert verdict(2, 20) == "worse"
    assert verdict(7, 5) == "chance"
    assert verdict(5, 0) == verdict(0, 3) == verdict(0, 0) == "cannot tell"
    assert verdict(5, 0, level=0.9) == "better"


def test_the_conditional_interval_excludes_zero_where_the_test_rejects():
    for gained, lost in itertools.product(range(14), repeat=2):
        before = flags(gained, lost, 40 - gained - lost)
        after = flags(0, gained, lost + 40 - gained - lost)
        found = compare(before, after, method="conditional")
        excluded = found.interval.low > 0 or found.interval.high < 0
        assert excluded == (not found.could_be_chance)
        assert found.interval.low <= found.difference <= found.interval.high


def test_no_change_is_no_proof_of_equality():
    same = flags(20, 36)
    found = compare(same, same)
    most = 1 - 0.025 ** (1 / 56)
    np.testing.assert_allclose(found.interval, (-most, most), rtol=1e-10)
    assert (found.p_value, found.method, found.draws) == (1.0, "conditional", 0)


def scores_by_hand(predictions, labels):
    recalls, f1 = [], []
    for c in sorted(set(labels) | (set(predictions) - {-1})):
        pairs = list(zip(predictions, labels, strict=True))
        tp = sum(p == c == t for p, t in pairs)
        fp = sum(p == c != t for p, t in pairs)
        fn = sum(t == c != p for p, t in pairs)
        f1.append(2 * tp / (2 * tp + fp + fn))
        if tp + fn:
            recalls.append(tp / (tp + fn))
    return np.mean(recalls), np.mean(f1)


@pytest.mark.parametrize("seed", range(8))
def test_scores_from_their_definitions(seed):
    rng = np.random.default_rng(seed)
    predictions, labels = rng.integers(-1, 4, 30), rng.integers(0, 3, 30)
    found = score_predictions(predictions, labels, ("a", "b", "c"))
    balanced, f1 = scores_by_hand(predictions.tolist(), labels.tolist())
    assert found.balanced_accuracy == pytest.approx(balanced, abs=1e-14)
    assert found.macro_f1 == pytest.approx(f1, abs=1e-14)
    assert found.accuracy == np.mean(predictions == labels)
    assert found.num_correct == np.sum(predictions == labels)
    assert found.num_nan == np.sum(predictions == -1)
    assert found.majority.count == max(np.bincount(labels))


def test_one_class_only_is_the_majority_line():
    labels = np.repeat([0, 1, 2], [10, 25, 15])
    found = score_predictions(np.ones(50, int), labels, ("No", "Yes", "Maybe"))
    assert found.majority == (1, "Yes", 0.5, 25)
    assert found.accuracy == found.majority.share
    assert found.balanced_accuracy == pytest.approx(1 / 3)
    assert majority_line([1, 0, 0, 1]).label == 0


def test_no_prediction_is_wrong_whatever_the_label():
    assert not mark_correct([-1] * 3, [0, 1, 2]).any()
    found = score_predictions([-1, -1], [0, 1])
    assert (found.accuracy, found.macro_f1, found.num_nan) == (0.0, 0.0, 2)
    assert mark_correct([[0, 1], [1, -1]], [0, 1]).tolist() == [[1, 1], [0, 0]]


def test_holm_step_by_step_and_against_its_adjusted_values():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = rng.integers(0, 12, (2, 4)) / 100
        rejected, left = set(), sorted(range(8), key=lambda i: p.ravel()[i])
        while left and p.ravel()[left[0]] <= 0.05 / len(left):
            rejected.add(left.pop(0))
        assert set(np.flatnonzero(holm(p, 0.05))) == rejected
        for alpha in (0.03, 0.051, 0.2):
            np.testing.assert_array_equal(holm(p, alpha), adjust_holm(p) <= alpha)
    assert holm(np.array(0.04), 0.05).shape == ()
    assert holm([], 0.05).shape == adjust_holm([]).shape == (0,)


def test_holm_guards_the_family_wise_level():
    p = np.random.default_rng(0).uniform(size=(4000, 20))
    wrong = np.mean([holm(row, 0.05).any() for row in p])
    assert abs(wrong - (1 - 0.9975**20)) < 5 * (0.05 * 0.95 / 4000) ** 0.5


def test_replicates():
    values = np.random.default_rng(0).random((5, 3))
    found = summarise_replicates(values)
    np.testing.assert_allclose(found.mean, values.mean(0), rtol=1e-15)
    np.testing.assert_allclose(found.standard_error, scipy.stats.sem(values))
    one = summarise_replicates([0.5])
    assert one.mean == 0.5
    assert np.isnan(one.standard_error)


def test_selection_among_equals_promises_what_is_not_there():
    """Eight coins: the best on 100 examples looks better than 1/2; judged apart not."""
    best, judged = [], []
    for trial in range(150):
        right = np.random.default_rng(trial).random((9, 100)) < 0.5
        found = corrected_selection(
            right[1:], np.arange(8) / 8, right[0], splits=4, seed=trial
        )
        best.append(found.score)
        judged.append(found.corrected)
    error = np.std(judged, ddof=1) / np.sqrt(len(judged))
    assert abs(np.mean(judged) - 0.5) < 4 * error
    assert np.mean(best) > 0.5 + 20 * np.std(best, ddof=1) / np.sqrt(len(best))


def test_selection_by_hand():
    rng = np.random.default_rng(5)
    right, base = rng.random((3, 11)) < 0.6, rng.random(11) < 0.5
    rates = [0.5, 0.0, 0.9]
    found = corrected_selection(right, rates, base, splits=7, seed=1)
    order, judged, picked = np.random.default_rng(1), [], []
    for _ in range(7):
        shuffled = order.permutation(11)
        for on, off in [(shuffled[:5], shuffled[5:]), (shuffled[5:], shuffled[:5])]:
            means = [right[i, on].mean() for i in (1, 0, 2)]
            best = [1, 0, 2][int(np.argmax(means))]
            improves = max(means) > base[on].mean()
            judged.append((right[best] if improves else base)[off].mean())
            picked.append(best if improves else None)
    assert found.corrected == pytest.approx(np.mean(judged), abs=1e-14)
    assert found.frequencies == tuple(picked.count(i) / 14 for i in range(3))
    assert found.unpruned == base.mean()


def test_one_clear_winner_needs_no_correction():
    right = np.array([[False] * 20, [True] * 20])
    found = corrected_selection(right, [0.1, 0.5], right[0])
    assert (found.rate, found.score, found.corrected, found.optimism) == (0.5, 1, 1, 0)
    assert found.frequencies == (0.0, 1.0)


def test_bad_input_is_named():
    yes = np.ones(4, bool)
    with raises("gained: expected an integer >= 0, got -1"):
        exact_mcnemar(-1, 0)
    with raises("correct: expected at most 3, got 4"):
        accuracy_interval(4, 3)
    with raises("level: expected a number between 0 and 1, got 1"):
        accuracy_interval(1, 3, level=1)
    with raises("values: expected at least one in a row, got shape (0,)"):
        bootstrap_interval([])
    with raises("values: expected finite entries"):
        bootstrap_interval([1.0, np.nan])
    with raises("before: expected booleans in 1 dimension(s), at least one, got int"):
        compare([0, 1], yes[:2])
    with raises("after: expected the shape of before, (4,), got (3,)"):
        compare(yes, yes[:3])
    with raises("predictions: expected numbers >= -1, got -2"):
        score_predictions([-2], [0])
    with raises("predictions: expected whole numbers"):
        mark_correct([0.5], [0])
    with raises("names: expected one for each of 3 classes, got 2"):
        majority_line([2], ("a", "b"))
    with raises("p: expected numbers in [0, 1], got nan"):
        holm([0.1, np.nan], 0.05)
    with raises("rates: expected numbers in [0, 1), got 1.0"):
        corrected_selection(yes[None], [1.0], yes)
    with raises("correct: expected at least two examples, got 1"):
        corrected_selection(yes[None, :1], [0.5], yes[:1])
