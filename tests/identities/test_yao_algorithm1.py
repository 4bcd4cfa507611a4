"""Case 1 and Algorithm 1: condition numbers, the layer, and the rate.

Case 1 is about eigenvalues and holds for normal matrices; singular values are what
counts. Algorithm 1 starts its search at the score 0, which is wrong in two ways.
"""

import numpy as np
import pytest
import scipy.stats

from icltheory.linalg import condition_number
from icltheory.pruning import Rank, choose_layers, choose_rate, prune
from tests.oracles import z_score

CANDIDATES = (0.0, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995)


@pytest.mark.statement("Yao: Case 1 (identity)")
def test_case_1_decomposition_is_an_identity(measured):
    rng = np.random.default_rng(0)
    W = rng.normal(size=(5, 5))
    W = W + W.T
    values, vectors = np.linalg.eigh(W)
    x_1, x_2, (a, b) = vectors[:, 0], vectors[:, 3], rng.normal(size=2)
    moved = W @ (a / values[0] * x_1 + b / values[3] * x_2)
    np.testing.assert_allclose(moved, a * x_1 + b * x_2, atol=1e-13)
    measured("largest error", np.abs(moved - a * x_1 - b * x_2).max())


@pytest.mark.statement("Yao: Case 1 (conditioning)")
def test_case_1_eigenvalues_say_nothing_for_a_matrix_that_is_not_normal(measured):
    W = np.array([[1.0, 1e6], [0.0, 1.0001]])
    values = np.linalg.eigvals(W)
    ratio = np.abs(values).max() / np.abs(values).min()
    condition = float(condition_number(W))
    np.testing.assert_allclose(ratio, 1.0001, rtol=1e-12)
    s = np.linalg.svd(W)[1]
    np.testing.assert_allclose(condition, s[0] / s[1], rtol=1e-3)
    assert condition > 0.9e12
    # Ill-conditioned all the same: a move of b by 1e-6 moves x by about 1.
    b = np.array([1.0, 1e-6])
    x, moved = np.linalg.solve(W, np.array([1.0, 0.0])), np.linalg.solve(W, b)
    assert np.linalg.norm(moved - x) > 0.9
    symmetric = np.diag([3.0, -1.5, 0.5])  # normal: the two agree
    np.testing.assert_allclose(condition_number(symmetric), 6, rtol=1e-14)
    measured("ratio of eigenvalues", ratio)
    measured("condition number", condition)


@pytest.mark.statement("Yao: Case 1 (conditioning)")
def test_case_1_the_condition_number_after_pruning(measured):
    """Pruned weights are singular; what is left is conditioned like s_1 / s_r."""
    W = np.random.default_rng(0).normal(size=(8, 8))
    s = np.linalg.svd(W)[1]
    pruned = prune(W, Rank(3))
    assert condition_number(pruned) > 1e14
    np.testing.assert_allclose(
        condition_number(pruned, rank=3), s[0] / s[2], rtol=1e-12
    )
    measured("condition number after pruning", condition_number(pruned))
    measured("the same at the rank kept", condition_number(pruned, rank=3))


@pytest.mark.statement("Yao: Algorithm 1 (layer)")
def test_algorithm_1_layer_depends_on_what_the_paper_leaves_open(measured):
    """Top k by condition number, then the deepest: k and the aggregation decide."""
    conditions = [
        [90.0, 1.0, 1.0],
        [40.0, 40.0, 40.0],
        [50.0, 2.0, 9.0],
        [3.0, 3.0, 3.0],
    ]
    chosen = {
        (k, aggregate): choose_layers(conditions, k, aggregate=aggregate).deepest
        for k in (1, 2, 3, 4)
        for aggregate in ("max", "mean", "geometric_mean", "min")
    }
    assert chosen[1, "max"] == 0
    assert chosen[1, "mean"] == 1
    assert chosen[2, "max"] == 2
    assert chosen[2, "min"] == 3
    assert {chosen[4, a] for a in ("max", "mean", "min")} == {3}  # the depth alone
    measured("different layers over k and aggregation", len(set(chosen.values())))


def printed_algorithm_1(scores, rates):
    best_rate, best_score = 0.0, 0.0
    for rate, score in zip(rates, scores, strict=True):
        if score > best_score:
            best_rate, best_score = rate, score
    return best_rate


@pytest.mark.statement("Yao: Algorithm 1 (rate)")
def test_algorithm_1_as_printed_is_reproduced():
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores = rng.integers(-3, 4, len(CANDIDATES)) / 4
        found = choose_rate(scores, CANDIDATES, scores[0], initial="zero")
        assert found.rate == printed_algorithm_1(scores, CANDIDATES)


@pytest.mark.statement("Yao: Algorithm 1 (rate)")
@pytest.mark.parametrize(
    ("unpruned", "rates", "scores", "printed", "best"),
    [
        # 0 is not among the candidates, and whatever is positive wins.
        (0.8, (0.1, 0.5, 0.9), (0.6, 0.7, 0.65), 0.5, 0.0),
        # A log-likelihood stays below the initial 0, however much pruning helps.
        (-2.0, (0.0, 0.5, 0.9), (-2.0, -1.5, -1.0), 0.0, 0.9),
    ],
)
def test_algorithm_1_initialisation_loses_score(
    unpruned, rates, scores, printed, best, measured
):
    assert printed_algorithm_1(scores, rates) == printed
    assert choose_rate(scores, rates, unpruned, initial="zero").rate == printed
    assert choose_rate(scores, rates, unpruned).rate == best
    at = {0.0: unpruned} | dict(zip(rates, scores, strict=True))
    measured("score lost by the printed rule", at[best] - at[printed])


@pytest.mark.statement("Yao: Algorithm 1 (rate)")
@pytest.mark.parametrize("order", [1, -1])
def test_algorithm_1_ties_go_to_the_smaller_rate_in_any_order(order):
    """As printed the first of the list wins; here its order plays no part."""
    rates, scores = (
        CANDIDATES[::order],
        [0.5, 0.6, 0.7, 0.7, 0.7, 0.6, 0.5, 0.5][::order],
    )
    assert choose_rate(scores, rates, 0.5).rate == 0.5
    assert printed_algorithm_1(scores, rates) == (0.5 if order == 1 else 0.9)
    assert choose_rate([0.5] * 8, rates, 0.5).rate == 0.0  # no gain, no pruning


@pytest.mark.slow
@pytest.mark.statement("Yao: Algorithm 1 (rate)")
def test_algorithm_1_the_best_of_eight_looks_better_than_it_is(measured):
    """Eight candidates of equal accuracy on 200 items: the winner's optimism."""
    rng = np.random.default_rng(0)
    accuracy = rng.binomial(200, 0.6, size=(2000, 8)) / 200
    winners = np.array([choose_rate(row, CANDIDATES, 0.0).score for row in accuracy])
    below = scipy.stats.binom.cdf(np.arange(200), 200, 0.6)
    expected = np.sum(1 - below**8) / 200  # the mean of the largest of eight
    assert abs(z_score(winners, expected)) < 5
    gain = expected - 0.6
    assert gain > 0.045
    measured("apparent gain of candidates that gain nothing", gain)
