import itertools

import numpy as np
import pytest

from icltheory.bridge.racing import bet, full_grid, race
from tests.raising import raises


def of(right, asked=None):
    """Evaluates by looking up, and notes what it was asked."""

    def evaluate(arms, examples):
        if asked is not None:
            asked.extend(itertools.product(arms, examples.tolist()))
        return right[np.ix_(arms, examples)]

    return evaluate


def curve(accuracies, num_examples, flips, seed):
    """Arms of given accuracies, each like the last but for so many flips both ways."""
    rng = np.random.default_rng(seed)
    counts = [round(a * num_examples) for a in accuracies]
    rows = [rng.permutation(num_examples) < counts[0]]
    for old, new in itertools.pairwise(counts):
        row = rows[-1].copy()
        up, down = flips + max(new - old, 0), flips + max(old - new, 0)
        wrong, right = np.flatnonzero(~row), np.flatnonzero(row)
        row[rng.choice(wrong, up, replace=False)] = True
        row[rng.choice(right, down, replace=False)] = False
        rows.append(row)
    return np.array(rows)


# RTE, GPT-J, MLP 26 and LLaMA, MLP 30, validation accuracy at the eight rates
RTE_GPTJ = [0.5388, 0.5388, 0.5388, 0.5514, 0.5589, 0.5589, 0.5664, 0.5639]
RTE_LLAMA = [0.5614, 0.5489, 0.5539, 0.5990, 0.5990, 0.5990, 0.5840, 0.5840]


def wealth(gains, most, batch=None):
    """Mean wealth after each look at differences in one order."""
    log_wealth, found = 0.0, []
    for start in range(0, len(gains), batch or 1):
        part = np.array(gains[start : start + (batch or 1)])
        rest = np.array(most - sum(gains[:start]))
        log_wealth = log_wealth + bet(part, rest, len(gains) - start)
        found.append(np.exp(log_wealth).mean())
    return found


@pytest.mark.parametrize(
    "gains",
    [(1, 1, -1, -1), (0, 0, 1, -1, 0), (1, -1, -1, 0, 0), (1, 1, 1, -1, -1, -1)],
)
def test_a_bet_is_fair_over_all_orders_where_the_hypothesis_just_holds(gains):
    by_order = [wealth(order, sum(gains)) for order in itertools.permutations(gains)]
    np.testing.assert_allclose(np.mean(by_order, axis=0), 1.0, rtol=1e-12)
    assert np.max(by_order) > 1.2


@pytest.mark.parametrize("gains", [(1, -1, -1, -1), (0, 0, 1, -1, 0), (-1, -1, 0, 0)])
def test_a_bet_is_unfavourable_where_the_hypothesis_holds_with_room(gains):
    orders = list(itertools.permutations(gains))
    by_order = [wealth(order, sum(gains) + 1) for order in orders]
    means = np.mean(by_order, axis=0)
    assert means.max() < 1.0
    assert np.all(np.diff(means) <= 1e-12)


def test_a_bet_against_what_is_impossible_is_won_for_certain():
    # Three ahead, with two to come that would have to bring it back to a tie
    assert wealth((1, 1, 1, 0, 0), 0)[-2] == np.inf
    assert np.isfinite(wealth((1, 1, -1, -1), 0)).all()


def test_batches_do_not_change_the_bet():
    gains = tuple(np.random.default_rng(0).integers(-1, 2, 40))
    most = sum(gains) + 1
    one, many = wealth(gains, most), wealth(gains, most, 8)
    np.testing.assert_allclose(one[7::8], many, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spread", "batch"),
    [
        (0.02, 8),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((0.0, 1), (0.0, 8), (0.02, 1), (0.1, 8))
        ),
    ],
)
def test_the_winner_is_dropped_with_probability_at_most_delta(spread, batch):
    """Random orders of one hard population each, at a generous delta."""
    delta, trials = 0.3, 250 if batch > 1 else 100
    rng = np.random.default_rng(int(100 * spread))
    share = 0.5 + spread * np.arange(4)[:, None]
    common = rng.random(40) < 0.3
    right = np.where(common, rng.random(40) < 0.5, rng.random((4, 40)) < share)
    best = full_grid(of(right), 4, 40).winner
    lost = 0
    for seed in range(trials):
        found = race(of(right), 4, 40, delta=delta, batch=batch, seed=seed)
        dropped = found.eliminated_at[best] is not None
        assert (found.winner != best) == dropped
        lost += dropped
    assert lost / trials <= delta + 3 * np.sqrt(delta * (1 - delta) / trials)


@pytest.mark.slow
def test_a_bound_that_is_ignored_would_be_seen():
    """The simulation can fail: with a delta near 1 the winner does get lost."""
    right = np.random.default_rng(3).random((6, 60)) < 0.5
    best = full_grid(of(right), 6, 60).winner
    lost = [
        race(of(right), 6, 60, delta=0.999, batch=1, seed=s).winner != best
        for s in range(100)
    ]
    assert np.mean(lost) > 0.05


def test_nothing_is_asked_twice_and_costs_are_counted():
    right = np.random.default_rng(0).random((5, 200)) < [[0.9]] + [[0.5]] * 4
    for search in (race, full_grid):
        asked = []
        found = search(of(right, asked), 5, 200, seed=1)
        assert len(asked) == len(set(asked)) == found.evaluations == sum(found.num_seen)
        assert found.full_evaluations == 1000
        assert found.saved == pytest.approx(1 - len(asked) / 1000)
        for arm in range(5):
            mine = [example for a, example in asked if a == arm]
            assert len(mine) == found.num_seen[arm]
            assert right[arm, mine].sum() == found.num_correct[arm]
            at = found.eliminated_at[arm]
            assert at is None or at == found.num_seen[arm]
        assert found.winner == 0


@pytest.mark.slow
def test_ties_go_to_the_smaller_number():
    row = np.random.default_rng(0).random(50) < 0.5
    assert race(of(np.array([row] * 3)), 3, 50).winner == 0
    assert full_grid(of(np.array([row] * 3)), 3, 50).winner == 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        tied = np.array([rng.permutation(40) < n for n in (18, 21, 21, 20)])
        assert race(of(tied), 4, 40, seed=seed, delta=0.01, batch=1).winner == 1


def test_an_arm_goes_for_certain_when_it_can_at_best_tie_and_ties_lose():
    order = []
    full_grid(lambda a, i: (order.extend(i), np.ones((1, 10), bool))[1], 1, 10)
    right = np.ones((2, 10), bool)
    right[1, order[3]] = False
    assert race(of(right), 2, 10, delta=1e-9, batch=1).eliminated_at == (None, 9)
    assert race(of(right[::-1]), 2, 10, delta=1e-9, batch=1).eliminated_at == (
        None,
        None,
    )


def test_equal_arms_are_carried_to_the_end():
    row = np.random.default_rng(0).random(100) < 0.5
    found = race(of(np.array([row] * 4)), 4, 100, batch=10)
    assert found.eliminated_at == (None,) * 4
    assert found.saved == 0


def test_arms_that_differ_much_are_dropped_at_once():
    right = np.random.default_rng(0).random((8, 2000)) < [[0.9]] + [[0.4]] * 7
    found = race(of(right), 8, 2000, batch=16)
    assert found.winner == 0
    assert found.saved > 0.9


def searched(accuracies, num_examples, flips):
    """Saving of the race, how often it finds the full grid's winner."""
    saved, raced = [], []
    for seed in range(30):
        right = curve(accuracies, num_examples, flips, seed)
        best = full_grid(of(right), 8, num_examples).winner
        found = race(of(right), 8, num_examples, seed=seed)
        saved.append(found.saved)
        raced.append(found.winner == best)
    return np.mean(saved), np.mean(raced)


@pytest.mark.slow
def test_on_published_curves_the_race_is_right_and_saves_little():
    """The eight arms differ by a few of 400 examples."""
    for accuracies, most in ((RTE_GPTJ, 0.15), (RTE_LLAMA, 0.35)):
        saved, raced = searched(accuracies, 400, flips=8)
        assert 0 < saved < most
        assert raced >= 1 - 0.05 - 3 * np.sqrt(0.05 * 0.95 / 30)


def test_on_many_examples_with_a_collapse_the_race_saves_most():
    accuracies = [0.783, 0.783, 0.785, 0.8, 0.82, 0.86, 0.84, 0.8]
    right = curve(accuracies, 8000, 160, seed=0)
    found = race(of(right), 8, 8000)
    assert found.winner == 5
    assert found.saved > 0.8


def test_small_races():
    one = race(of(np.ones((1, 5), bool)), 1, 5)
    assert (one.winner, one.evaluations) == (0, 0)
    few = np.array([[0, 0], [1, 1], [0, 1], [0, 0], [1, 0]], bool)
    assert race(of(few), 5, 2, batch=1).winner == 1


def test_order_is_random_and_fixed_by_the_seed():
    right = np.random.default_rng(0).random((2, 50)) < 0.5
    orders = []
    for seed in (0, 0, 1):
        asked = []
        full_grid(of(right, asked), 2, 50, seed=seed, batch=7)
        orders.append([example for arm, example in asked if arm == 0])
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(50)) != orders[0]


def test_bad_input_is_named():
    right = np.ones((2, 8), bool)
    with raises("delta: expected a number between 0 and 1, got 0"):
        race(of(right), 2, 8, delta=0)
    with raises("batch: expected a positive integer, got 0"):
        race(of(right), 2, 8, batch=0)
    with raises("num_arms: expected a positive integer, got 0"):
        full_grid(of(right), 0, 8)
    with raises("evaluate_batch: expected booleans of shape (2, 8), got int64 of"):
        race(lambda arms, examples: np.ones((2, 8), int), 2, 8)
    with raises("evaluate_batch: expected booleans of shape (2, 8), got bool of"):
        race(lambda arms, examples: right.T, 2, 8)
