"""Exact risks of ridge and Bayes given the inputs, and their averages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory.regression import (
    Bayes,
    LinearPopulation,
    LinearStep,
    Ridge,
    estimate_risk,
    optimum,
    squared_errors,
)
from icltheory.statistics import Estimate
from tests.identities.test_exact_risks import full_task
from tests.raising import raises
from tests.regression import oracles


def each(given, X):
    """Of one prompt's inputs, or of each of a batch."""
    return (jax.vmap(given) if np.ndim(X) == 3 else given)(X)


@jax.jit
def ridge_given(task, X, penalty):
    """Risk given the inputs, without the noise of the query, as those below."""
    return each(lambda X: Ridge(penalty).risk_given(task, X), X)


@jax.jit
def bayes_given(task, X):
    return each(lambda X: Bayes(task).risk_given(task, X), X)


@jax.jit
def bayes_prefix_risks(task, X):
    return each(lambda X: Bayes(task).risks_given(task, X), X)


def bayes_curve(task, num_prompts, num_examples, seed=0):
    """Bayes risks after 0, ..., N examples, with the noise of the query."""
    drawn = {"key": jax.random.key(seed), "num_prompts": num_prompts}
    return estimate_risk(Bayes(task), task, range(num_examples + 1), **drawn)


@pytest.mark.statement("Hastie: Lemma 1")
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
        got = ridge_given(task, X, penalty)
        measured("relative error", got / expected - 1, below=1e-9)


@pytest.mark.statement("Hastie: Lemma 1")
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
        predictions = jax.vmap(Ridge(0.7).predict_prefixes)(rows, y)
        return (predictions[:, -1] - prompt.y_query) ** 2

    sample = np.asarray(errors(jax.random.key(0)))
    z = sample.mean() - ridge_given(task, X[:4], 0.7) - 0.5
    z /= sample.std() / np.sqrt(len(sample))
    measured("z", z, below=5)


@pytest.mark.statement("Zhang: Lemma 6.1")
def test_bayes_given_inputs_is_ridge_with_the_right_penalty_and_the_least_of_all(
    measured,
):
    X = np.random.default_rng(0).normal(size=(2, 5, 3))
    task = LinearPopulation(full_task().input_cov, np.zeros(3), np.eye(3), 0.6)
    best = np.asarray(bayes_given(task, X))
    right = np.asarray(ridge_given(task, X, 0.6))
    measured("relative error", best / right - 1, below=1e-12)
    for penalty in (0.0, 0.3, 0.59, 0.61, 2.0):
        assert np.all(np.asarray(ridge_given(task, X, penalty)) > best)


@pytest.mark.statement("Zhang: Lemma 6.1")
def test_bayes_given_inputs_of_the_worked_example(measured):
    H, Psi = np.array([[2, 0.5], [0.5, 1]]), np.array([[1, 0.2], [0.2, 0.5]])
    task = LinearPopulation(H, np.array([1.0, -2.0]), Psi, 0.25)
    X = np.array([[1.0, 0], [0, 1], [1, -1]])
    risk = float(bayes_given(task, X)) + 0.25
    np.testing.assert_allclose(risk, 0.715352449223, rtol=1e-11)
    # it is the trace of H with the posterior covariance
    precision = np.linalg.inv(Psi) + X.T @ X / 0.25
    expected = np.trace(H @ np.linalg.inv(precision)) + 0.25
    measured("relative error", risk / expected - 1, below=1e-12)

    def moved(change):
        return float(bayes_given(task, X + change))

    slope = np.asarray(jax.jit(jax.grad(lambda X: bayes_given(task, X)))(X))
    for at in np.ndindex(*X.shape):
        step = np.zeros_like(X)
        step[at] = 1e-5
        difference = (moved(step) - moved(-step)) / 2e-5
        np.testing.assert_allclose(slope[at], difference, atol=1e-8)


@pytest.mark.statement("Zhang: Lemma 6.1")
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
    known = jax.jit(jax.vmap(lambda X: Bayes(exact).risks_given(exact, X)))(X)
    np.testing.assert_allclose(known, path, atol=1e-9)


@pytest.mark.statement("Zhang: Lemma 6.1")
@pytest.mark.slow
def test_the_bayes_risk_agrees_with_the_errors_of_the_bayes_predictor(measured):
    task = full_task(0.5)
    sizes = {"key": jax.random.key(0), "num_prompts": 8000, "prefixes": True}
    errors = Estimate.of(squared_errors(Bayes(task), task, 8, **sizes))
    risk = bayes_curve(task, 4000, 8, seed=1)
    both = np.hypot(errors.standard_error, risk.standard_error)
    measured("largest z", np.max(np.abs(errors.mean - risk.mean) / both), below=5)
    # only the inputs are sampled, so far fewer prompts do
    assert np.all(risk.standard_error[1:] < 0.7 * errors.standard_error[1:])
    np.testing.assert_allclose(
        risk.mean[0],
        np.trace(np.asarray(task.input_cov) @ np.asarray(task.task_cov)) + 0.5,
        rtol=1e-9,
    )


@pytest.mark.statement("Zhang: Lemma 6.1")
def test_the_bayes_risk_in_one_dimension_is_a_chi_square_integral(measured):
    # phi = 2, sigma = 1/2, M = 3
    task = LinearPopulation(2 * np.eye(1), np.zeros(1), np.eye(1), 0.25)
    risk = bayes_curve(task, 20_000, 3)
    mean, error = np.asarray(risk.mean) - 0.25, np.asarray(risk.standard_error)
    measured("z", (mean[3] - 0.164662268434) / error[3], below=5)


@pytest.mark.statement("Zhang: Lemma 6.1")
@pytest.mark.slow
def test_the_bayes_risk_lies_between_jensen_and_one_gradient_step(measured):
    noise = 0.3
    phi = np.array([3.0, 1.0, 0.2])
    task = LinearPopulation(np.diag(phi), np.zeros(3), np.eye(3), noise)
    risk = bayes_curve(task, 4000, 12)
    for k in (1, 4, 12):
        low = noise + np.sum(phi * noise / (noise + k * phi))
        high = optimum(LinearStep, task, k).risk
        slack = 4 * risk.standard_error[k]
        measured(f"over the lower end, k = {k}", risk.mean[k] / low)
        measured(f"over the upper end, k = {k}", risk.mean[k] / high)
        assert low - slack <= risk.mean[k] <= high + slack


@pytest.mark.statement("Raventos: ridge baseline")
def test_the_published_ridge_curve(measured):
    # d = 8, sigma^2 = 1/4, errors against noiseless labels, over d, k = 0..15
    reference = np.array(
        [1.00, 0.875, 0.760, 0.658, 0.528, 0.426, 0.332, 0.242]
        + [0.180, 0.132, 0.0995, 0.0771, 0.0622, 0.0516, 0.0434, 0.0380]
    )
    task = LinearPopulation.isotropic(8, 0.25)
    curve = (np.asarray(bayes_curve(task, 4000, 15).mean) - 0.25) / 8
    measured("largest relative difference", curve / reference - 1, below=0.03)
    assert abs(curve.mean() - 0.3445) < 0.004


@pytest.mark.statement("Bai: ridge baselines")
def test_the_published_ridge_risks_of_transformers_as_statisticians(measured):
    # d = n = 20, w ~ N(0, I / 20), penalty d sigma^2
    for sigma, expected in ((0.1, 0.103), (0.25, 0.229), (0.5, 0.398), (1.0, 0.622)):
        task = LinearPopulation(np.eye(20), np.zeros(20), np.eye(20) / 20, sigma**2)
        drawn = {"key": jax.random.key(0), "num_prompts": 1000}
        risk = estimate_risk(Ridge(20 * sigma**2), task, 20, **drawn)
        off = risk.mean - sigma**2 - expected
        measured("difference", off, below=5e-4 + 5 * risk.standard_error)


@pytest.mark.statement("Zhang: Lemma 6.1")
def test_impossible_risks_say_what_was_expected(key):
    task = full_task()
    with raises("num_prompts: expected a positive integer, got 0"):
        estimate_risk(Bayes(task), task, 3, key=key, num_prompts=0)
    with raises("num_examples: expected an integer >= 0, got -1"):
        estimate_risk(Ridge(0.1), task, -1, key=key)
