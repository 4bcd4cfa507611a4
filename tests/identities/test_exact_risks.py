"""Exact risks against simulation, closed forms and each other."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory.regression.predictors import (
    averaging_prefixes,
    bayes_prefixes,
    gradient_descent_prefixes,
    ols_prefixes,
    ridge_prefixes,
    zero_prefixes,
)
from icltheory.regression.risks import (
    averaging_risk,
    bayes_risk,
    bayes_risk_given,
    bayes_risk_given_prefixes,
    least_squares_risk,
    linear_attention_optimum,
    linear_attention_risk,
    monte_carlo_risk,
    optimal_step_size,
    ridge_risk,
    ridge_risk_given,
    zero_risk,
)
from icltheory.regression.tasks import LinearRegression
from tests.regression import oracles

GARG = LinearRegression.isotropic(20)
COUNTS = jnp.arange(41)


def raises(message):
    return pytest.raises(ValueError, match="^" + re.escape(message))


def full_task(noise_var=0.5, seed=1, dim=3):
    rng = np.random.default_rng(seed)
    A, C = rng.normal(size=(2, dim, dim))
    return LinearRegression(A @ A.T, rng.normal(size=dim), C @ C.T, noise_var)


def simulate(predictor, task, num_prompts, num_examples, query_noise=True, seed=0):
    def run(key):
        return monte_carlo_risk(
            predictor,
            task,
            key,
            num_prompts,
            num_examples=num_examples,
            query_noise=query_noise,
        )

    return jax.jit(run)(jax.random.key(seed))


def assert_agree(risk, exact, prefixes=slice(None)):
    z = (risk.mean - exact) / risk.standard_error
    assert np.max(np.abs(np.asarray(z)[prefixes])) < 5


# --- closed forms of the isotropic case


def test_least_squares_averaging_and_one_layer_attention_for_d_20():
    k = np.arange(1, 41)

    def curve(risk):
        return np.asarray(jax.vmap(lambda n: risk(GARG, n))(jnp.asarray(k))) / 20

    np.testing.assert_allclose(
        curve(least_squares_risk), np.maximum(1 - k / 20, 0), atol=1e-14
    )
    np.testing.assert_allclose(curve(averaging_risk), 21 / k, rtol=1e-12)
    best = curve(lambda task, n: linear_attention_optimum(task, n).risk)
    np.testing.assert_allclose(best, 21 / (k + 21), rtol=1e-12)
    assert zero_risk(GARG) == 20.0
    # Garg's training loss of least squares over 41 points
    total = 20 + curve(least_squares_risk).sum() * 20
    np.testing.assert_allclose(total / 41, 210 / 41, rtol=1e-12)


def test_noise_enters_attention_and_averaging_as_d_plus_1_plus_sigma_squared():
    for d, noise in ((1, 0.0), (3, 0.7), (8, 2.0)):
        task = LinearRegression.isotropic(d, noise)
        for k in (1, 5, 30):
            best = linear_attention_optimum(task, k, query_noise=False)
            shrink = k / (k + d + 1 + noise)
            np.testing.assert_allclose(best.Gamma, shrink * np.eye(d), atol=1e-14)
            np.testing.assert_allclose(best.risk, d * (1 - shrink), rtol=1e-12)
            np.testing.assert_allclose(optimal_step_size(task, k), shrink, rtol=1e-12)
            np.testing.assert_allclose(
                averaging_risk(task, k, query_noise=False), d * (d + 1 + noise) / k
            )


# --- simulation


def test_simulation_agrees_for_least_squares_averaging_and_zero_at_d_20():
    for predictor, exact in (
        (ols_prefixes, least_squares_risk),
        (averaging_prefixes, averaging_risk),
        (zero_prefixes, lambda task, k: zero_risk(task)),
    ):
        risk = simulate(predictor, GARG, 2000, 40)
        curve = jax.vmap(functools.partial(exact, GARG))(COUNTS)
        random = slice(0, 20) if predictor is ols_prefixes else slice(None)
        assert_agree(risk, curve, random)
        if predictor is ols_prefixes:
            np.testing.assert_allclose(risk.mean[20:], 0, atol=1e-10)


def test_least_squares_with_noise_below_and_above_d():
    task = LinearRegression(0.5 * np.eye(6), np.ones(6), 2 * np.eye(6), 0.3)
    risk = simulate(ols_prefixes, task, 8000, 30)
    exact = [float(least_squares_risk(task, k)) for k in range(31)]
    # within 4 of d the squared error has no variance, so no z-score
    assert_agree(risk, np.array(exact), slice(0, 3))
    assert_agree(risk, np.array(exact), slice(11, None))
    assert np.all(np.isinf(exact[5:8]))
    assert np.isclose(exact[8], 0.3 * 6 + 0.3)
    assert np.isclose(exact[0], 0.5 * (12 + 6) + 0.3)
    assert np.isclose(least_squares_risk(task, 8, query_noise=False), 0.3 * 6)


def test_least_squares_beyond_d_is_the_same_for_every_input_covariance():
    task = full_task(0.5)
    exact = least_squares_risk(task, 12, query_noise=False)
    np.testing.assert_allclose(exact, 0.5 * 3 / 8, rtol=1e-12)
    average = ridge_risk(
        task, jax.random.key(0), 4000, 0.0, num_examples=12, query_noise=False
    )
    assert abs((average.mean - exact) / average.standard_error) < 5
    # and is not below d: the restriction to multiples of the identity is needed
    with raises("input_cov: expected a multiple of the identity where num_examples <"):
        least_squares_risk(task, 2)
    skewed = LinearRegression(np.diag([4.0, 1.0, 0.1]), np.zeros(3), np.eye(3), 0.0)
    average = ridge_risk(skewed, jax.random.key(0), 4000, 0.0, num_examples=1)
    isotropic = float(zero_risk(skewed)) * (1 - 1 / 3)
    assert average.mean + 20 * average.standard_error < isotropic


def test_attention_and_averaging_for_any_population():
    task = full_task(0.5)
    exact = jax.jit(
        jax.vmap(
            lambda k, Gamma: linear_attention_risk(task, k, Gamma, query_noise=False),
            (0, None),
        )
    )
    counts = jnp.arange(10)
    for Gamma in (np.eye(3), 0.3 * np.random.default_rng(2).normal(size=(3, 3))):
        step = functools.partial(
            gradient_descent_prefixes, steps=1, step_size=1.0, preconditioner=Gamma
        )
        risk = simulate(step, task, 20_000, 9, query_noise=False)
        assert_agree(risk, exact(counts, Gamma))
    noisy = jax.jit(jax.vmap(functools.partial(averaging_risk, task)))(counts)
    np.testing.assert_allclose(noisy, exact(counts, np.eye(3)) + 0.5, rtol=1e-12)


def test_the_risk_of_a_fixed_preconditioner_is_also_that_of_other_lengths():
    # a matrix tuned for k = 4 and used at k = 9 is worse than one tuned for 9
    task = full_task(0.5)
    best = [linear_attention_optimum(task, k) for k in (4, 9)]
    used = linear_attention_risk(task, 9, best[0].Gamma)
    assert best[1].risk < used < best[0].risk


# --- the optimum of one layer


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), k=st.sampled_from([1, 4, 50]))
def test_the_optimum_of_one_layer_is_stationary_and_has_the_stated_risk(seed, k):
    H, mean, Psi, noise = _population(seed)
    Gamma, risk, gradient, at, near, eta, slope = _optimum(
        H, mean, Psi, noise, k, np.random.default_rng(seed).normal(size=(3, 3))
    )
    scale = np.abs(np.asarray(H)).max() ** 2 * np.abs(np.asarray(Psi)).max() + 1
    np.testing.assert_allclose(gradient, 0, atol=1e-9 * scale)
    np.testing.assert_allclose(at, risk, rtol=1e-9)
    assert near >= risk * (1 - 1e-12)
    np.testing.assert_allclose(slope, 0, atol=1e-9 * scale)


def _population(seed):
    rng = np.random.default_rng(seed)
    A, C = rng.normal(size=(2, 3, 3))
    return A @ A.T, rng.normal(size=3), C @ C.T, rng.uniform()


@jax.jit
def _optimum(H, mean, Psi, noise, k, direction):
    task = LinearRegression(H, mean, Psi, noise)
    best = linear_attention_optimum(task, k)
    risk = functools.partial(linear_attention_risk, task, k)
    eta = optimal_step_size(task, k)
    slope = jax.grad(lambda e: risk(e * jnp.eye(3)))(eta)
    near = risk(best.Gamma + 0.01 * direction)
    gradient = jax.grad(risk)(best.Gamma)
    return best.Gamma, best.risk, gradient, risk(best.Gamma), near, eta, slope


def test_the_optimum_for_an_isotropic_prior_is_the_published_matrix():
    A = np.random.default_rng(0).normal(size=(4, 4))
    H, psi2, noise, n = A @ A.T, 1.7, 0.6, 11
    task = LinearRegression(H, np.zeros(4), psi2 * np.eye(4), noise)
    expected = np.linalg.inv(
        (np.trace(H) + noise / psi2) / n * np.eye(4) + (n + 1) / n * H
    )
    best = linear_attention_optimum(task, n)
    np.testing.assert_allclose(best.Gamma, expected, rtol=1e-9, atol=1e-12)
    identity = np.eye(4) * (np.trace(H) + noise / psi2) / n + H / n
    expected_risk = noise + psi2 * np.trace(expected @ H @ identity)
    np.testing.assert_allclose(best.risk, expected_risk, rtol=1e-10)


def test_the_optimum_of_the_worked_example():
    H, Psi = np.array([[2, 0.5], [0.5, 1]]), np.array([[1, 0.2], [0.2, 0.5]])
    best = linear_attention_optimum(LinearRegression(H, np.zeros(2), Psi, 0.25), 3)
    expected = [[0.268887121673, -0.018524582495], [-0.018524582495, 0.289376432614]]
    np.testing.assert_allclose(best.Gamma, expected, atol=1e-11)
    np.testing.assert_allclose(best.risk, 1.521361743930, rtol=1e-11)
    five = LinearRegression.isotropic(5)
    np.testing.assert_allclose(linear_attention_optimum(five, 20).risk, 30 / 26)


def test_the_optimum_also_for_singular_covariances_and_without_examples():
    H, Psi = np.diag([2.0, 0.0, 1.0]), np.diag([0.0, 1.0, 3.0])
    task = LinearRegression(H, np.zeros(3), Psi, 0.1)
    best = linear_attention_optimum(task, 7, query_noise=False)
    one = LinearRegression(np.eye(1), np.zeros(1), 3 * np.eye(1), 0.1)
    np.testing.assert_allclose(
        best.risk, linear_attention_optimum(one, 7, query_noise=False).risk, rtol=1e-12
    )
    none = linear_attention_optimum(task, 0)
    np.testing.assert_array_equal(none.Gamma, np.zeros((3, 3)))
    np.testing.assert_allclose(none.risk, zero_risk(task), rtol=1e-12)
    assert optimal_step_size(task, 0) == 0
    np.testing.assert_allclose(averaging_risk(task, 0), zero_risk(task), rtol=1e-12)


# --- ridge and Bayes given the inputs


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), penalty=st.sampled_from([0.01, 1.0, 30.0]))
def test_ridge_given_inputs_is_the_expansion_in_weight_and_noise(seed, penalty):
    rng = np.random.default_rng(seed)
    task = full_task(0.5, seed % 1000)
    parts = (np.asarray(a) for a in (task.input_cov, task.task_mean, task.task_cov))
    parts = list(parts)
    for num in (2, 6):
        X = rng.normal(size=(num, 3))
        expected = oracles.ridge_risk_given(X, penalty, *parts, 0.5)
        got = ridge_risk_given(task, X, penalty, query_noise=False)
        np.testing.assert_allclose(got, expected, rtol=1e-9)
        np.testing.assert_allclose(
            ridge_risk_given(task, X, penalty), expected + 0.5, rtol=1e-9
        )


def test_ridge_given_inputs_agrees_with_simulation():
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
    z = sample.mean() - ridge_risk_given(task, X[:4], 0.7)
    assert abs(z) < 5 * sample.std() / np.sqrt(len(sample))


def test_bayes_given_inputs_is_ridge_with_the_right_penalty_and_the_least_of_all():
    X = np.random.default_rng(0).normal(size=(2, 5, 3))
    task = LinearRegression(full_task().input_cov, np.zeros(3), np.eye(3), 0.6)
    best = bayes_risk_given(task, X)
    np.testing.assert_allclose(best, ridge_risk_given(task, X, 0.6), rtol=1e-12)
    for penalty in (0.0, 0.3, 0.59, 0.61, 2.0):
        assert np.all(ridge_risk_given(task, X, penalty) > best)


def test_bayes_given_inputs_of_the_worked_example():
    H, Psi = np.array([[2, 0.5], [0.5, 1]]), np.array([[1, 0.2], [0.2, 0.5]])
    task = LinearRegression(H, np.array([1.0, -2.0]), Psi, 0.25)
    X = np.array([[1.0, 0], [0, 1], [1, -1]])
    np.testing.assert_allclose(bayes_risk_given(task, X), 0.715352449223, rtol=1e-11)
    # it is the trace of H with the posterior covariance
    precision = np.linalg.inv(Psi) + X.T @ X / 0.25
    expected = np.trace(H @ np.linalg.inv(precision)) + 0.25
    np.testing.assert_allclose(bayes_risk_given(task, X), expected, rtol=1e-12)


def test_bayes_risks_of_all_prefixes_are_those_of_each():
    X = np.random.default_rng(0).normal(size=(2, 7, 3))
    X[1, 2] = X[1, 0]
    singular = LinearRegression(np.eye(3), np.zeros(3), np.diag([1.0, 2.0, 0.0]), 0.4)
    exact = LinearRegression(np.eye(3), np.zeros(3), np.diag([1.0, 2.0, 3.0]), 0.0)
    for task in (full_task(0.5), singular, exact):
        path = bayes_risk_given_prefixes(task, X)
        for k in (0, 1, 3, 6):
            np.testing.assert_allclose(
                path[:, k], bayes_risk_given(task, X[:, :k]), rtol=1e-9, atol=1e-12
            )
    # a traced zero noise is the limit as well
    traced = jax.jit(
        lambda noise: bayes_risk_given_prefixes(
            LinearRegression(exact.input_cov, jnp.zeros(3), exact.task_cov, noise), X
        )
    )(0.0)
    np.testing.assert_allclose(traced, path, atol=1e-9)


def test_the_bayes_risk_agrees_with_the_errors_of_the_bayes_predictor():
    task = full_task(0.5)
    prior = {
        name: getattr(task, name) for name in ("task_mean", "task_cov", "noise_var")
    }
    errors = simulate(functools.partial(bayes_prefixes, **prior), task, 8000, 8)
    risk = jax.jit(lambda k: bayes_risk(task, k, 4000, num_examples=8))(
        jax.random.key(1)
    )
    both = np.hypot(errors.standard_error, risk.standard_error)
    assert np.max(np.abs(errors.mean - risk.mean) / both) < 5
    # only the inputs are sampled, so far fewer prompts do
    assert np.all(risk.standard_error[1:] < 0.7 * errors.standard_error[1:])
    np.testing.assert_allclose(
        risk.mean[0],
        np.trace(np.asarray(task.input_cov) @ np.asarray(task.task_cov)) + 0.5,
        rtol=1e-9,
    )


def test_the_bayes_risk_in_one_dimension_is_a_chi_square_integral():
    # phi = 2, sigma = 1/2, M = 3
    task = LinearRegression(2 * np.eye(1), np.zeros(1), np.eye(1), 0.25)
    risk = bayes_risk(
        task, jax.random.key(0), 20_000, num_examples=3, query_noise=False
    )
    z = (risk.mean[3] - 0.164662268434) / risk.standard_error[3]
    assert abs(z) < 5


def test_the_bayes_risk_lies_between_jensen_and_one_gradient_step():
    noise = 0.3
    phi = np.array([3.0, 1.0, 0.2])
    task = LinearRegression(np.diag(phi), np.zeros(3), np.eye(3), noise)
    risk = jax.jit(
        lambda k: bayes_risk(task, k, 4000, num_examples=12, query_noise=False)
    )(jax.random.key(0))
    for k in (1, 4, 12):
        low = np.sum(phi * noise / (noise + k * phi))
        high = linear_attention_optimum(task, k, query_noise=False).risk
        slack = 4 * risk.standard_error[k]
        assert low - slack <= risk.mean[k] <= high + slack


def test_the_published_ridge_curve():
    # d = 8, sigma^2 = 1/4, errors against noiseless labels, over d, k = 0..15
    reference = np.array(
        [1.00, 0.875, 0.760, 0.658, 0.528, 0.426, 0.332, 0.242]
        + [0.180, 0.132, 0.0995, 0.0771, 0.0622, 0.0516, 0.0434, 0.0380]
    )
    task = LinearRegression.isotropic(8, 0.25)
    risk = jax.jit(
        lambda k: bayes_risk(task, k, 4000, num_examples=15, query_noise=False)
    )(jax.random.key(0))
    np.testing.assert_allclose(risk.mean / 8, reference, rtol=0.03)
    assert abs(risk.mean.mean() / 8 - 0.3445) < 0.004


def test_the_published_ridge_risks_of_transformers_as_statisticians():
    # d = n = 20, w ~ N(0, I / 20), penalty d sigma^2
    for sigma, expected in ((0.1, 0.103), (0.25, 0.229), (0.5, 0.398), (1.0, 0.622)):
        task = LinearRegression(np.eye(20), np.zeros(20), np.eye(20) / 20, sigma**2)
        risk = ridge_risk(
            task,
            jax.random.key(0),
            1000,
            20 * sigma**2,
            num_examples=20,
            query_noise=False,
        )
        assert abs(risk.mean - expected) < 5e-4 + 5 * risk.standard_error


def test_exact_risks_are_differentiable_and_vectorise(key):
    @jax.jit
    def total(noise):
        task = LinearRegression(jnp.eye(3), jnp.zeros(3), jnp.eye(3), noise)
        X = jax.random.normal(key, (4, 3))
        risks = jax.vmap(lambda k: averaging_risk(task, k))(jnp.arange(1, 5))
        return (
            risks.sum()
            + linear_attention_optimum(task, 4).risk
            + ridge_risk_given(task, X, 0.3)
            + bayes_risk_given(task, X)
            + bayes_risk_given_prefixes(task, X).sum()
        )

    up, down = total(0.5 + 1e-6), total(0.5 - 1e-6)
    np.testing.assert_allclose(jax.grad(total)(0.5), (up - down) / 2e-6, rtol=1e-6)


def test_impossible_risks_say_what_was_expected(key):
    task = full_task()
    with raises("num_examples: expected a value >= 0, got -1"):
        averaging_risk(task, -1)
    with raises("num_examples: expected a value >= 0, got -1"):
        linear_attention_optimum(task, -1)
    with raises("Gamma: expected shape (3, 3), got (2, 2)"):
        linear_attention_risk(task, 4, np.eye(2))
    with raises("X: expected shape (N, 3) or (B, N, 3), got (4, 2)"):
        bayes_risk_given(task, np.ones((4, 2)))
    with raises("penalty: expected a value >= 0, got -1.0"):
        ridge_risk_given(task, np.ones((4, 3)), -1.0)
    with raises("num_prompts: expected a positive integer, got 0"):
        bayes_risk(task, key, 0, num_examples=3)
    with raises("num_examples: expected an integer >= 0, got -1"):
        ridge_risk(task, key, 3, 0.1, num_examples=-1)
