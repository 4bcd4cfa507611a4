"""Exact risks against simulation, closed forms and each other."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory.regression import LinearPopulation, risks
from icltheory.regression.predictors import (
    averaging_prefixes,
    gradient_descent_prefixes,
    ols_prefixes,
    zero_prefixes,
)
from icltheory.regression.risks import (
    bayes_risk_given,
    bayes_risk_given_prefixes,
    monte_carlo_risk,
    ridge_risk,
    ridge_risk_given,
)
from tests.raising import raises

query = functools.partial(jax.jit, static_argnames="query_noise")
averaging_risk = query(risks.averaging_risk)
least_squares_risk = query(risks.least_squares_risk)
linear_attention_optimum = query(risks.linear_attention_optimum)
linear_attention_risk = query(risks.linear_attention_risk)
optimal_step_size = jax.jit(risks.optimal_step_size)
zero_risk = query(risks.zero_risk)


@functools.cache
def garg():
    return LinearPopulation(np.eye(20), np.zeros(20), np.eye(20), 0.0)


def full_task(noise_var=0.5, seed=1, dim=3):
    rng = np.random.default_rng(seed)
    A, C = rng.normal(size=(2, dim, dim))
    return LinearPopulation(A @ A.T, rng.normal(size=dim), C @ C.T, noise_var)


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


def assert_agree(measured, risk, exact, prefixes=slice(None), name="z"):
    mean, error = np.asarray(risk.mean), np.asarray(risk.standard_error)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = ((mean - np.asarray(exact)) / error)[prefixes]
    measured(f"largest {name}", np.max(np.abs(z)))
    assert np.max(np.abs(z)) < 5


# --- closed forms of the isotropic case


@pytest.mark.slow
def test_least_squares_averaging_and_one_layer_attention_for_d_20(measured):
    k, task = np.arange(1, 41), garg()

    def curve(risk):
        return np.asarray(jax.jit(jax.vmap(lambda n: risk(task, n)))(k)) / 20

    exact = np.maximum(1 - k / 20, 0)
    measured("error, least squares", np.abs(curve(least_squares_risk) - exact).max())
    np.testing.assert_allclose(curve(least_squares_risk), exact, atol=1e-14)
    mean = curve(averaging_risk)
    measured("relative error, averaging", np.abs(mean / (21 / k) - 1).max())
    np.testing.assert_allclose(mean, 21 / k, rtol=1e-12)
    best = curve(lambda task, n: linear_attention_optimum(task, n).risk)
    measured("one layer", np.abs(best / (21 / (k + 21)) - 1).max())
    np.testing.assert_allclose(best, 21 / (k + 21), rtol=1e-12)
    assert zero_risk(task) == 20.0
    # Garg's training loss of least squares over 41 points
    total = 20 + curve(least_squares_risk).sum() * 20
    np.testing.assert_allclose(total / 41, 210 / 41, rtol=1e-12)


def test_noise_enters_attention_and_averaging_as_d_plus_1_plus_sigma_squared(measured):
    assert zero_risk(LinearPopulation.isotropic(20, 0.25)) == 20.25
    for d, noise in ((1, 0.0), (3, 0.7)):
        task = LinearPopulation.isotropic(d, noise)
        for k in (1, 5, 30):
            best = linear_attention_optimum(task, k, query_noise=False)
            shrink = k / (k + d + 1 + noise)
            np.testing.assert_allclose(best.Gamma, shrink * np.eye(d), atol=1e-14)
            measured("relative error", best.risk / (d * (1 - shrink)) - 1)
            np.testing.assert_allclose(best.risk, d * (1 - shrink), rtol=1e-12)
            np.testing.assert_allclose(optimal_step_size(task, k), shrink, rtol=1e-12)
            np.testing.assert_allclose(
                averaging_risk(task, k, query_noise=False), d * (d + 1 + noise) / k
            )


# --- simulation


@pytest.mark.slow
@pytest.mark.parametrize(
    ("predictor", "exact"),
    [
        (ols_prefixes, least_squares_risk),
        pytest.param(averaging_prefixes, averaging_risk, marks=pytest.mark.slow),
        pytest.param(
            zero_prefixes, lambda task, k: zero_risk(task), marks=pytest.mark.slow
        ),
    ],
)
def test_simulation_agrees_for_least_squares_averaging_and_zero_at_d_20(
    predictor, exact, measured
):
    risk = simulate(predictor, garg(), 2000, 40)
    curve = jax.jit(jax.vmap(functools.partial(exact, garg())))(np.arange(41))
    random = slice(0, 20) if predictor is ols_prefixes else slice(None)
    assert_agree(measured, risk, curve, random)
    if predictor is ols_prefixes:
        np.testing.assert_allclose(np.asarray(risk.mean)[20:], 0, atol=1e-10)


@pytest.mark.slow
def test_least_squares_with_noise_below_and_above_d(measured):
    task = LinearPopulation(0.5 * np.eye(6), np.ones(6), 2 * np.eye(6), 0.3)
    risk = simulate(ols_prefixes, task, 8000, 30)
    exact = jax.jit(jax.vmap(functools.partial(risks.least_squares_risk, task)))
    exact = np.asarray(exact(np.arange(31)))
    # within 4 of d the squared error has no variance, so no z-score
    assert_agree(measured, risk, np.array(exact), slice(0, 3), "z below d")
    assert_agree(measured, risk, np.array(exact), slice(11, None), "z above d")
    assert np.all(np.isinf(exact[5:8]))
    assert np.isclose(exact[8], 0.3 * 6 + 0.3)
    assert np.isclose(exact[0], 0.5 * (12 + 6) + 0.3)
    assert np.isclose(least_squares_risk(task, 8, query_noise=False), 0.3 * 6)


def test_least_squares_beyond_d_is_the_same_for_every_input_covariance(measured):
    task = full_task(0.5)
    exact = least_squares_risk(task, 12, query_noise=False)
    np.testing.assert_allclose(exact, 0.5 * 3 / 8, rtol=1e-12)
    average = jax.jit(
        lambda key: ridge_risk(task, key, 4000, 0.0, num_examples=12, query_noise=False)
    )(jax.random.key(0))
    z = (average.mean - exact) / average.standard_error
    measured("z", z)
    assert abs(z) < 5
    # without full rank the rank stands in place of d
    for rank, share in ((2, 2 / 9), (1, 1 / 10), (0, 0.0)):
        H = np.diag([2.0, 0.5, 1.0] * (np.arange(3) < rank))
        flat = LinearPopulation(H, np.ones(3), np.eye(3), 0.5)
        found = least_squares_risk(flat, 12, query_noise=False)
        np.testing.assert_allclose(found, 0.5 * share, rtol=1e-12)
    # and is not below d: the restriction to multiples of the identity is needed
    with raises("input_cov: expected a multiple of the identity where num_examples <"):
        risks.least_squares_risk(task, 2)
    skewed = LinearPopulation(np.diag([4.0, 1.0, 0.1]), np.zeros(3), np.eye(3), 0.0)
    average = jax.jit(lambda key: ridge_risk(skewed, key, 4000, 0.0, num_examples=1))(
        jax.random.key(0)
    )
    isotropic = float(zero_risk(skewed)) * (1 - 1 / 3)
    measured("below d, other covariance: share", average.mean / isotropic)
    assert average.mean + 20 * average.standard_error < isotropic


@pytest.mark.slow
def test_attention_and_averaging_for_any_population(measured):
    task = full_task(0.5)
    exact = jax.jit(
        jax.vmap(
            lambda k, Gamma: linear_attention_risk(task, k, Gamma, query_noise=False),
            (0, None),
        )
    )
    counts = np.arange(10)
    for Gamma in (np.eye(3), 0.3 * np.random.default_rng(2).normal(size=(3, 3))):
        step = functools.partial(
            gradient_descent_prefixes, steps=1, step_size=1.0, preconditioner=Gamma
        )
        risk = simulate(step, task, 20_000, 9, query_noise=False)
        assert_agree(measured, risk, exact(counts, Gamma))
    noisy = jax.jit(jax.vmap(functools.partial(averaging_risk, task)))(counts)
    np.testing.assert_allclose(noisy, exact(counts, np.eye(3)) + 0.5, rtol=1e-12)


def test_the_risk_of_a_fixed_preconditioner_is_also_that_of_other_lengths(measured):
    # a matrix tuned for k = 4 and used at k = 9 is worse than one tuned for 9
    task = full_task(0.5)
    best = [linear_attention_optimum(task, k) for k in (4, 9)]
    used = linear_attention_risk(task, 9, best[0].Gamma)
    measured("excess of the matrix of k = 4 at k = 9", used / best[1].risk - 1)
    assert best[1].risk < used < best[0].risk


# --- the optimum of one layer


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), k=st.sampled_from([1, 4, 50]))
def test_the_optimum_of_one_layer_is_stationary_and_has_the_stated_risk(
    seed, k, measured
):
    H, mean, Psi, noise = _population(seed)
    Gamma, risk, gradient, at, near, eta, slope = _optimum(
        H, mean, Psi, noise, k, np.random.default_rng(seed).normal(size=(3, 3))
    )
    scale = np.abs(np.asarray(H)).max() ** 2 * np.abs(np.asarray(Psi)).max() + 1
    measured("gradient at the optimum", np.abs(gradient).max() / scale)
    measured("relative error of its risk", at / risk - 1)
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
    task = LinearPopulation(H, mean, Psi, noise)
    best = linear_attention_optimum(task, k)
    risk = functools.partial(linear_attention_risk, task, k)
    eta = optimal_step_size(task, k)
    slope = jax.grad(lambda e: risk(e * jnp.eye(3)))(eta)
    near = risk(best.Gamma + 0.01 * direction)
    gradient = jax.grad(risk)(best.Gamma)
    return best.Gamma, best.risk, gradient, risk(best.Gamma), near, eta, slope


def test_the_optimum_for_an_isotropic_prior_is_the_published_matrix(measured):
    A = np.random.default_rng(0).normal(size=(4, 4))
    H, psi2, noise, n = A @ A.T, 1.7, 0.6, 11
    task = LinearPopulation(H, np.zeros(4), psi2 * np.eye(4), noise)
    expected = np.linalg.inv(
        (np.trace(H) + noise / psi2) / n * np.eye(4) + (n + 1) / n * H
    )
    best = linear_attention_optimum(task, n)
    measured("error of Gamma", np.abs(best.Gamma - expected).max())
    np.testing.assert_allclose(best.Gamma, expected, rtol=1e-9, atol=1e-12)
    identity = np.eye(4) * (np.trace(H) + noise / psi2) / n + H / n
    expected_risk = noise + psi2 * np.trace(expected @ H @ identity)
    measured("relative error of its risk", best.risk / expected_risk - 1)
    np.testing.assert_allclose(best.risk, expected_risk, rtol=1e-10)


@pytest.mark.slow
def test_the_optimum_of_the_worked_example(measured):
    H, Psi = np.array([[2, 0.5], [0.5, 1]]), np.array([[1, 0.2], [0.2, 0.5]])
    best = linear_attention_optimum(LinearPopulation(H, np.zeros(2), Psi, 0.25), 3)
    expected = [[0.268887121673, -0.018524582495], [-0.018524582495, 0.289376432614]]
    measured("error of Gamma", np.abs(best.Gamma - np.array(expected)).max())
    np.testing.assert_allclose(best.Gamma, expected, atol=1e-11)
    np.testing.assert_allclose(best.risk, 1.521361743930, rtol=1e-11)
    five = LinearPopulation.isotropic(5)
    np.testing.assert_allclose(linear_attention_optimum(five, 20).risk, 30 / 26)


@pytest.mark.slow
def test_the_optimum_also_for_singular_covariances_and_without_examples():
    H, Psi = np.diag([2.0, 0.0, 1.0]), np.diag([0.0, 1.0, 3.0])
    task = LinearPopulation(H, np.zeros(3), Psi, 0.1)
    best = linear_attention_optimum(task, 7, query_noise=False)
    one = LinearPopulation(np.eye(1), np.zeros(1), 3 * np.eye(1), 0.1)
    np.testing.assert_allclose(
        best.risk, linear_attention_optimum(one, 7, query_noise=False).risk, rtol=1e-12
    )
    none = linear_attention_optimum(task, 0)
    assert risks.linear_attention_optimum(task, 0).risk == none.risk
    np.testing.assert_array_equal(none.Gamma, np.zeros((3, 3)))
    np.testing.assert_allclose(none.risk, zero_risk(task), rtol=1e-12)
    assert optimal_step_size(task, 0) == 0
    np.testing.assert_allclose(averaging_risk(task, 0), zero_risk(task), rtol=1e-12)


# --- all of them


@pytest.mark.slow
def test_exact_risks_are_differentiable_and_vectorise(key, measured):
    @jax.jit
    def total(noise):
        task = LinearPopulation(jnp.eye(3), jnp.zeros(3), jnp.eye(3), noise)
        X = jax.random.normal(key, (4, 3))
        risks = jax.vmap(lambda k: averaging_risk(task, k))(jnp.arange(1, 5))
        return (
            risks.sum()
            + linear_attention_optimum(task, 4).risk
            + ridge_risk_given(task, X, 0.3)
            + bayes_risk_given(task, X)
            + bayes_risk_given_prefixes(task, X).sum()
        )

    difference = (total(0.5 + 1e-6) - total(0.5 - 1e-6)) / 2e-6
    gradient = jax.jit(jax.grad(total))(0.5)
    measured("gradient against differences", gradient / difference - 1)
    np.testing.assert_allclose(gradient, difference, rtol=1e-6)


def test_impossible_risks_say_what_was_expected(key):
    task = full_task()
    with raises("num_examples: expected a whole number >= 0, got -1"):
        risks.averaging_risk(task, -1)
    with raises("num_examples: expected a whole number >= 0, got -1"):
        risks.linear_attention_optimum(task, -1)
    with raises("Gamma: expected shape (3, 3), got (2, 2)"):
        risks.linear_attention_risk(task, 4, np.eye(2))
