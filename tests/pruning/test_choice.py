import numpy as np
import pytest

from icltheory.pruning import choose_layers, choose_rate
from tests.raising import raises

pytestmark = pytest.mark.statement("Yao: Algorithm 1 (rate)")

RATES = [0.1, 0.5, 0.9]


def test_layers_by_every_aggregate():
    scores = [[8.0, 2.0], [4.0, 4.0, 4.0], [16.0, 1.0], [3.0]]
    expected = {
        "max": [8, 4, 16, 3],
        "mean": [5, 4, 8.5, 3],
        "geometric_mean": [4, 4, 4, 3],
        "min": [2, 4, 1, 3],
    }
    for aggregate, values in expected.items():
        found = choose_layers(scores, 2, aggregate=aggregate)
        np.testing.assert_allclose(found.scores, values, rtol=1e-14)
    assert choose_layers(scores, 2, aggregate="max")[:2] == ((2, 0), 2)
    assert choose_layers(scores, 2, aggregate="min")[:2] == ((1, 3), 3)
    assert choose_layers(scores, 4, aggregate="max").deepest == 3
    assert choose_layers(np.eye(3), 3, aggregate="max").layers == (2, 1, 0)
    assert choose_layers([[1.0], [np.inf]], 1, aggregate="geometric_mean").deepest == 1


def test_rate_of_each_kind():
    assert choose_rate([0.5, 0.9, 0.8], RATES, 0.7) == (0.5, 0.9, 1)
    assert choose_rate([0.5, 0.6, 0.7], RATES, 0.7) == (0.0, 0.7, None)
    assert choose_rate([0.5, 0.6, 0.3], RATES, 0.4, maximize=False) == (0.9, 0.3, 2)
    assert choose_rate([0.5, 0.6, 0.4], RATES, 0.4, maximize=False).index is None


def test_order_of_the_candidates_does_not_matter():
    rng = np.random.default_rng(0)
    for _ in range(20):
        rates, scores = rng.permutation(8) / 8, rng.integers(0, 4, 8)
        best = [r for r, s in zip(rates, scores, strict=True) if s == scores.max()]
        found = choose_rate(scores, rates, -1.0)
        assert found.rate == min(best)
        assert found.score == scores.max()


def test_nan_never_wins():
    assert choose_rate([np.nan, 0.6, np.nan], RATES, 0.5).rate == 0.5
    assert choose_rate([np.nan] * 3, RATES, 0.5) == (0.0, 0.5, None)


def test_bad_input():
    with raises("aggregate: expected one of 'max', 'mean', 'geometric_mean', 'min'"):
        choose_layers(np.eye(3), 1, aggregate="median")
    with pytest.raises(TypeError, match="aggregate"):
        choose_layers(np.eye(3), 1)
    with raises("k: expected at most 3 layers, got 4"):
        choose_layers(np.eye(3), 4, aggregate="max")
    with raises("k: expected a positive integer, got 0"):
        choose_layers(np.eye(3), 0, aggregate="max")
    with raises("scores: expected rows of numbers, none empty or NaN, got [nan]"):
        choose_layers([[1.0], [np.nan]], 1, aggregate="max")
    with raises("scores: expected values >= 0, got -1.0"):
        choose_layers([[-1.0]], 1, aggregate="geometric_mean")
    with raises("scores: expected no 0 together with an infinity in a geometric mean"):
        choose_layers([[0.0, np.inf]], 1, aggregate="geometric_mean")
    with raises("scores: expected one for each of the rates, shape (3,), got (2,)"):
        choose_rate([0.1, 0.2], RATES, 0.0)
    with raises("rates: expected numbers in [0, 1), got 1.0"):
        choose_rate([0.1], [1.0], 0.0)
    with raises("unpruned_score: expected a number, got nan"):
        choose_rate([0.1], [0.5], np.nan)
    with raises("unpruned_score: expected shape (), got (2,)"):
        choose_rate([0.1], [0.5], [0.1, 0.2])
    with raises("initial: expected one of 'unpruned', 'zero', got 'none'"):
        choose_rate([0.1], [0.5], 0.0, initial="none")
