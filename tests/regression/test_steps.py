"""Gradient and Newton steps from zero."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression.predictors import Averaging, Newton, Steps, tune_step_size
from tests.regression import oracles
from tests.regression.calls import answer, answers

tune = jax.jit(tune_step_size, static_argnums=4)


@functools.partial(jax.jit, static_argnums=3)
def descend(X, y, x, steps, eta):
    return answer(Steps(jnp.full(steps, eta)), X, y, x)


def test_no_steps_predict_zero():
    assert answer(Steps([]), np.ones((2, 3)), np.ones(2), np.ones(3)) == 0


def von_oswald(seed, num_prompts):
    """Dimension and N 10, x ~ U(-1/2, 1/2), w ~ N(0, I)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.5, 0.5, size=(num_prompts, 11, 10))
    y = np.einsum("bnd,bd->bn", X, rng.normal(size=(num_prompts, 10)))
    return X[:, :10], y[:, :10], X[:, 10], y[:, 10]


def test_one_tuned_step_has_the_exact_risk_of_von_oswald():
    # optimal step on the summed gradient 0.60606, loss 0.206229 = E error^2 / 2
    X, y, x, target = von_oswald(0, 20_000)
    size = float(tune(X, y, x, target, 1))
    slope = np.asarray(descend(X, y, x, 1, 1.0))
    spread = np.sqrt(np.sum(slope**2 * (target - 6.0606 * slope) ** 2))
    assert abs(size - 6.0606) < 5 * spread / np.sum(slope**2)
    X, y, x, target = von_oswald(1, 20_000)
    losses = 0.5 * (np.asarray(descend(X, y, x, 1, 6.0606)) - target) ** 2
    z = (losses.mean() - 0.206229) / (losses.std() / np.sqrt(len(losses)))
    assert abs(z) < 5

    # the loss is a parabola in the step, so the tuned one can only do better
    def loss(eta):
        return ((np.asarray(descend(X, y, x, 1, eta)) - target) ** 2).mean()

    best = float(tune(X, y, x, target, 1))
    assert loss(best) <= min(loss(best * 1.01), loss(best * 0.99))


@pytest.mark.slow
def test_tuned_steps_are_at_least_as_good_as_a_fine_scan():
    X, y, x, target = von_oswald(2, 500)
    for steps in (2, 5):

        @jax.jit
        def loss(eta, steps=steps):
            return ((descend(X, y, x, steps, eta) - target) ** 2).mean()

        best = float(tune(X, y, x, target, steps))
        scan = min(float(loss(eta)) for eta in np.linspace(0.02, 1.2, 60) * 2 * best)
        assert loss(best) <= scan * (1 + 1e-6)


def test_where_no_step_moves_an_answer_the_tuned_size_is_zero():
    asked = np.ones((3, 2)), np.ones(3)
    for examples in (2, 0):
        nothing = np.zeros((3, examples, 2)), np.ones((3, examples))
        found = [float(tune(*nothing, *asked, steps)) for steps in (1, 2)]
        assert found == [0.0, 0.0]


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
