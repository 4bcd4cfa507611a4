import jax
import numpy as np
import pytest

from icltheory.regression.predictors import Averaging, Newton
from tests.regression import oracles
from tests.regression.calls import answer, answers


def fit(X, y, x, steps, initial_scale=1.0):
    return answer(Newton(steps, initial_scale), X, y, x)


def data(shape=(2, 9, 4)):
    rng = np.random.default_rng(0)
    return rng.normal(size=shape), rng.normal(size=shape[:-1])


def test_it_converges_to_least_squares_of_minimum_norm_at_every_prefix():
    X, y = data()
    got = answers(Newton(40), X, y)
    expected = oracles.each_prefix(oracles.ols, X, y, X)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-8)


def test_the_error_squares_at_every_step():
    # scalar case: S M_t = 1 - (1 - c)^(2^t)
    X, y = np.array([[2.0]]), np.array([6.0])
    for steps in range(5):
        got = fit(X, y, np.ones(1), steps, initial_scale=0.3)
        np.testing.assert_allclose(got, 3 * (1 - 0.7 ** (2**steps)), rtol=1e-12)


@pytest.mark.slow
def test_the_published_scale_never_leaves_zero_on_examples_of_rank_one():
    X, y = np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([1.0, 2.0])
    x = np.array([1.0, 0.0])
    for steps in (1, 5):
        got = fit(X, y, x, steps, initial_scale=2.0)
        np.testing.assert_allclose(got, 0, atol=1e-12)
        assert abs(oracles.newton(X, y, x, steps, 2.0)) < 1e-12
    np.testing.assert_allclose(fit(X, y, x, 20), 0.2, rtol=1e-9)
    X, y = data()
    got = fit(X, y, X[:, 0], 5, initial_scale=2.0)
    expected = [
        oracles.newton(a, b, c, 5, 2.0) for a, b, c in zip(X, y, X[:, 0], strict=True)
    ]
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_inputs_that_are_zero_have_a_derivative():
    labels, asked = np.ones(3), np.ones(2)
    slope = jax.jit(jax.grad(lambda X: fit(X, labels, asked, 2)))(np.zeros((3, 2)))
    assert np.all(np.isfinite(slope))


def test_no_prefix_is_no_prediction():
    # what is summed over the examples before has none to put in front
    X, y = np.zeros((2, 0, 3)), np.zeros((2, 0))
    assert answers(Newton(2), X, y).shape == (2, 0)
    assert answers(Averaging(), X[0], y[0]).shape == (0,)
