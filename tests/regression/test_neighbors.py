import numpy as np
import pytest

from icltheory.regression import LinearPopulation
from icltheory.regression.measures import estimate_risk
from icltheory.regression.predictors import NearestNeighbors
from tests.regression.calls import answer, answers


def nearest(X, y, x, k):
    return answer(NearestNeighbors(k), X, y, x)


def test_fewer_examples_than_neighbours_give_the_mean_of_all():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4, 2)), rng.normal(size=4)
    got = np.asarray(answers(NearestNeighbors(3), X, y))
    np.testing.assert_allclose(
        got[:4], [0, y[0], y[:2].mean(), y[:3].mean()], rtol=1e-12
    )
    np.testing.assert_allclose(nearest(X[:2], y[:2], X[3], k=3), y[:2].mean())


def test_one_neighbour_of_a_repeated_input_is_its_label_and_ties_take_the_first():
    X = np.array([[0.0, 1.0], [2.0, 0.0], [0.0, 1.0]])
    y = np.array([5.0, 7.0, 9.0])
    assert nearest(X, y, X[1], k=1) == 7.0
    assert nearest(X, y, X[0], k=1) == 5.0
    assert nearest(X, y, X[0], k=2) == 7.0


def test_distances_whose_squares_overflow_are_compared():
    X, y = np.float32([[3e19], [4e19], [-3.3e38]]), np.float32([1.0, 3.0, 8.0])
    query = np.float32([0.0])
    for k, mean in ((1, 1.0), (2, 2.0), (3, 4.0)):
        assert nearest(X, y, query, k=k) == mean
    # Differences overflow, too: from 3.3e38 the last example is the farthest.
    assert nearest(X, y, np.float32([3.3e38]), k=2) == 2.0
    assert answers(NearestNeighbors(3), X, y).tolist() == [0.0, 1.0, 2.0]


@pytest.mark.slow
def test_three_neighbours_have_the_published_risk(key):
    # normalised risk for d = 20 at k = 1, 5, 10, 15, 18, 20, 40, known to +-0.02
    reference = {
        1: 1.99,
        5: 1.11,
        10: 0.917,
        15: 0.843,
        18: 0.802,
        20: 0.805,
        40: 0.680,
    }
    task = LinearPopulation(np.eye(20), np.zeros(20), np.eye(20), 0.0)
    drawn = {"key": key, "num_prompts": 1000}
    risk = estimate_risk(NearestNeighbors(3), task, range(41), **drawn)
    for k, value in reference.items():
        tolerance = 0.02 + 3 * float(risk.standard_error[k]) / 20
        if k == 1:
            tolerance += 0.04  # two decimals and a few per cent of error are quoted
        assert abs(float(risk.mean[k]) / 20 - value) < tolerance
