"""Exact risks of ridge and Bayes given the inputs, and their averages."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory.regression import LinearPopulation
from icltheory.regression.predictors import bayes_prefixes, ridge_prefixes
from icltheory.regression.risks import (
    bayes_risk,
    bayes_risk_given,
    bayes_risk_given_prefixes,
    linear_attention_optimum,
    monte_carlo_risk,
    ridge_risk,
    ridge_risk_given,
)
from tests.identities.test_exact_risks import full_task
from tests.raising import raises
from tests.regression import oracles

noisy = functools.partial(jax.jit, static_argnames="query_noise")
ridge_given = noisy(ridge_risk_given)
bayes_given = noisy(bayes_risk_given)
bayes_prefix_risks = noisy(bayes_risk_given_prefixes)
average = functools.partial(
    jax.jit, static_argnums=2, static_argnames=("num_examples", "query_noise")
)
bayes_average, ridge_average = average(bayes_risk), average(ridge_risk)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), penalty=st.sampled_from([0.01, 1.0, 30.0]))
def test_ridge_given_inputs_is_the_expansion_in_weight_and_noise(
    seed, penalty, measured
):
    rng = np.random.default_rng(seed)
    task = full_task(0.5, seed % 1000)
    parts = (np.asarray(a) for a in (task.input_cov, task.task_mean, task.task_cov))
    parts = list(parts)
    for num in (2, 6):
        X = rng.normal(size=(num, 3))
        expected = oracles.ridge_risk_given(X, penalty, *parts, 0.5)
        got = ridge_given(task, X, penalty, query_noise=False)
        measured("relative error", got / expected - 1)
        np.testing.assert_allclose(got, expected, rtol=1e-9)
        with_noise = ridge_given(task, X, penalty)
        np.testing.assert_allclose(with_noise, expected + 0.5, rtol=1e-9)


@pytest.mark.slow
def test_ridge_given_inputs_agrees_with_simulation(measured):
    task = full_task(0.5)
    X = np.random.default_rng(0).normal(size=(5, 3))

    @jax.jit
    def errors(key):
        prompt = task.sample(key, 4, 40_000)
        noise = prompt.y[:, :4] - jnp.einsum("bnd,bd->bn", prompt.X, prompt.w)
        rows = jnp.broadcast_to(X[:4], (40_000, 4, 3))
        y = jnp.einsum("nd,bd->bn", X[:4], prompt.w) + noise
        rows = jnp.concatenate([rows, prompt.x_query[:, None]], axis=1)
        y = jnp.concatenate([y, prompt.y_query[:, None]], axis=1)
        predictions = ridge_prefixes(rows, y, penalty=0.7)
        return (predictions[:, -1] - prompt.y_query) ** 2

    sample = np.asarray(errors(jax.random.key(0)))
    z = sample.mean() - ridge_given(task, X[:4], 0.7)
    z /= sample.std() / np.sqrt(len(sample))
    measured("z", z)
    assert abs(z) < 5


def test_bayes_given_inputs_is_ridge_with_the_right_penalty_and_the_least_of_all(
    measured,
):
    X = np.random.default_rng(0).normal(size=(2, 5, 3))
    task = LinearPopulation(full_task().input_cov, np.zeros(3), np.eye(3), 0.6)
    best = np.asarray(bayes_given(task, X))
    right = np.asarray(ridge_given(task, X, 0.6))
    measured("relative error", np.abs(best / right - 1).max())
    np.testing.assert_allclose(best, right, rtol=1e-12)
    for penalty in (0.0, 0.3, 0.59, 0.61, 2.0):
        assert np.all(np.asarray(ridge_given(task, X, penalty)) > best)


def test_bayes_given_inputs_of_the_worked_example(measured):
    H, Psi = np.array([[2, 0.5], [0.5, 1]]), np.array([[1, 0.2], [0.2, 0.5]])
    task = LinearPopulation(H, np.array([1.0, -2.0]), Psi, 0.25)
    X = np.array([[1.0, 0], [0, 1], [1, -1]])
    risk = float(bayes_given(task, X))
    np.testing.assert_allclose(risk, 0.715352449223, rtol=1e-11)
    # it is the trace of H with the posterior covariance
    precision = np.linalg.inv(Psi) + X.T @ X / 0.25
    expected = np.trace(H @ np.linalg.inv(precision)) + 0.25
    measured("relative error", risk / expected - 1)
    np.testing.assert_allclose(risk, expected, rtol=1e-12)

    def moved(change):
        return float(bayes_given(task, X + change))

    slope = np.asarray(jax.jit(jax.grad(lambda X: bayes_given(task, X)))(X))
    for at in np.ndindex(*X.shape):
        step = np.zeros_like(X)
        step[at] = 1e-5
        difference = (moved(step) - moved(-step)) / 2e-5
        np.testing.assert_allclose(slope[at], difference, atol=1e-8)


def test_bayes_risks_of_all_prefixes_are_those_of_each(measured):
    X = np.random.default_rng(0).normal(size=(2, 7, 3))
    X[1, 2] = X[1, 0]
    singular = LinearPopulation(np.eye(3), np.zeros(3), np.diag([1.0, 2.0, 0.0]), 0.4)
    exact = LinearPopulation(np.eye(3), np.zeros(3), np.diag([1.0, 2.0, 3.0]), 0.0)
    for task in (full_task(0.5), singular, exact):
        path = np.asarray(bayes_prefix_risks(task, X))
        for k in (0, 1, 3, 6):
            one = np.asarray(bayes_given(task, X[:, :k]))
            measured("error", np.abs(path[:, k] - one).max())
            np.testing.assert_allclose(path[:, k], one, rtol=1e-9, atol=1e-12)
    # a traced zero noise is the limit as well
    known = jax.jit(lambda X: bayes_risk_given_prefixes(exact, X))(X)
    np.testing.assert_allclose(known, path, atol=1e-9)


@pytest.mark.slow
def test_the_bayes_risk_agrees_with_the_errors_of_the_bayes_predictor(measured):
    task = full_task(0.5)
    prior = {
        name: getattr(task, name) for name in ("task_mean", "task_cov", "noise_var")
    }
    predict = functools.partial(bayes_prefixes, **prior)
    errors = jax.jit(
        lambda k: monte_carlo_risk(predict, task, k, 8000, num_examples=8)
    )(jax.random.key(0))
    risk = jax.jit(lambda k: bayes_risk(task, k, 4000, num_examples=8))(
        jax.random.key(1)
    )
    both = np.hypot(errors.standard_error, risk.standard_error)
    z = np.max(np.abs(errors.mean - risk.mean) / both)
    measured("largest z", z)
    assert z < 5
    # only the inputs are sampled, so far fewer prompts do
    assert np.all(risk.standard_error[1:] < 0.7 * errors.standard_error[1:])
    np.testing.assert_allclose(
        risk.mean[0],
        np.trace(np.asarray(task.input_cov) @ np.asarray(task.task_cov)) + 0.5,
        rtol=1e-9,
    )


def test_the_bayes_risk_in_one_dimension_is_a_chi_square_integral(measured):
    # phi = 2, sigma = 1/2, M = 3
    task = LinearPopulation(2 * np.eye(1), np.zeros(1), np.eye(1), 0.25)
    key = jax.random.key(0)
    risk = bayes_average(task, key, 20_000, num_examples=3, query_noise=False)
    mean, error = np.asarray(risk.mean), np.asarray(risk.standard_error)
    z = (mean[3] - 0.164662268434) / error[3]
    measured("z", z)
    assert abs(z) < 5


@pytest.mark.slow
def test_the_bayes_risk_lies_between_jensen_and_one_gradient_step(measured):
    noise = 0.3
    phi = np.array([3.0, 1.0, 0.2])
    task = LinearPopulation(np.diag(phi), np.zeros(3), np.eye(3), noise)
    risk = jax.jit(
        lambda k: bayes_risk(task, k, 4000, num_examples=12, query_noise=False)
    )(jax.random.key(0))
    for k in (1, 4, 12):
        low = np.sum(phi * noise / (noise + k * phi))
        high = linear_attention_optimum(task, k, query_noise=False).risk
        slack = 4 * risk.standard_error[k]
        measured(f"over the lower end, k = {k}", risk.mean[k] / low)
        measured(f"over the upper end, k = {k}", risk.mean[k] / high)
        assert low - slack <= risk.mean[k] <= high + slack


def test_the_published_ridge_curve(measured):
    # d = 8, sigma^2 = 1/4, errors against noiseless labels, over d, k = 0..15
    reference = np.array(
        [1.00, 0.875, 0.760, 0.658, 0.528, 0.426, 0.332, 0.242]
        + [0.180, 0.132, 0.0995, 0.0771, 0.0622, 0.0516, 0.0434, 0.0380]
    )
    task = LinearPopulation.isotropic(8, 0.25)
    risk = jax.jit(
        lambda k: bayes_risk(task, k, 4000, num_examples=15, query_noise=False)
    )(jax.random.key(0))
    difference = np.abs(risk.mean / 8 / reference - 1).max()
    measured("largest relative difference", difference)
    np.testing.assert_allclose(risk.mean / 8, reference, rtol=0.03)
    assert abs(risk.mean.mean() / 8 - 0.3445) < 0.004


def test_the_published_ridge_risks_of_transformers_as_statisticians(measured):
    # d = n = 20, w ~ N(0, I / 20), penalty d sigma^2
    for sigma, expected in ((0.1, 0.103), (0.25, 0.229), (0.5, 0.398), (1.0, 0.622)):
        task = LinearPopulation(np.eye(20), np.zeros(20), np.eye(20) / 20, sigma**2)
        given = (task, jax.random.key(0), 1000, 20 * sigma**2)
        risk = ridge_average(*given, num_examples=20, query_noise=False)
        measured("difference", risk.mean - expected)
        assert abs(risk.mean - expected) < 5e-4 + 5 * risk.standard_error


def test_impossible_risks_say_what_was_expected(key):
    task = full_task()
    with raises("X: expected shape (N, 3) or (B, N, 3), got (4, 2)"):
        bayes_risk_given(task, np.ones((4, 2)))
    with raises("penalty: expected a value >= 0, got -1.0"):
        ridge_risk_given(task, np.ones((4, 3)), -1.0)
    with raises("num_prompts: expected a positive integer, got 0"):
        bayes_risk(task, key, 0, num_examples=3)
    with raises("num_examples: expected an integer >= 0, got -1"):
        ridge_risk(task, key, 3, 0.1, num_examples=-1)
