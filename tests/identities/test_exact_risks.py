"""Exact risks against simulation, closed forms and each other."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory.regression import (
    Averaging,
    Bayes,
    LeastSquares,
    LinearPopulation,
    LinearStep,
    Ridge,
    Steps,
    Zero,
    estimate_risk,
    optimum,
    risk,
    squared_errors,
)
from icltheory.statistics import Estimate
from tests.raising import raises

averaging_risk = functools.partial(risk, Averaging())
least_squares_risk = functools.partial(risk, LeastSquares())
best_step = functools.partial(optimum, LinearStep)


def zero_risk(task):
    return risk(Zero(), task, 0)


def step_risk(task, k, Gamma):
    return risk(LinearStep(Gamma), task, k)


def step_size(task, k):
    return optimum(Steps(1), task, k).model.step_sizes[0]


@functools.cache
def garg():
    return LinearPopulation(np.eye(20), np.zeros(20), np.eye(20), 0.0)


def full_task(noise_var=0.5, seed=1, dim=3):
    rng = np.random.default_rng(seed)
    A, C = rng.normal(size=(2, dim, dim))
    return LinearPopulation(A @ A.T, rng.normal(size=dim), C @ C.T, noise_var)


def simulate(predictor, task, num_prompts, num_examples):
    sizes = {"key": jax.random.key(0), "num_prompts": num_prompts, "prefixes": True}
    return Estimate.of(squared_errors(predictor, task, num_examples, **sizes))


def assert_agree(measured, found, exact, prefixes=slice(None), name="z"):
    mean, error = np.asarray(found.mean), np.asarray(found.standard_error)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = ((mean - np.asarray(exact)) / error)[prefixes]
    measured(f"largest {name}", z, below=5)


# --- closed forms of the isotropic case


@pytest.mark.statement("Garg: least squares")
@pytest.mark.slow
def test_least_squares_averaging_and_one_layer_attention_for_d_20(measured):
    k, task = np.arange(1, 41), garg()

    def curve(risk):
        return np.asarray(jax.jit(jax.vmap(lambda n: risk(task, n)))(k)) / 20

    exact = np.maximum(1 - k / 20, 0)
    measured("error, least squares", curve(least_squares_risk) - exact, below=1e-14)
    mean = curve(averaging_risk)
    measured("relative error, averaging", mean / (21 / k) - 1, below=1e-12)
    best = curve(lambda task, n: best_step(task, n).risk)
    measured("one layer", best / (21 / (k + 21)) - 1, below=1e-12)
    assert zero_risk(task) == 20.0
    # Garg's training loss of least squares over 41 points
    total = 20 + curve(least_squares_risk).sum() * 20
    np.testing.assert_allclose(total / 41, 210 / 41, rtol=1e-12)


@pytest.mark.statement("Garg: averaging", "Zhang: Theorem 5.2 (one layer)")
def test_noise_enters_attention_and_averaging_as_d_plus_1_plus_sigma_squared(measured):
    assert zero_risk(LinearPopulation.isotropic(20, 0.25)) == 20.25
    for d, noise in ((1, 0.0), (3, 0.7)):
        task = LinearPopulation.isotropic(d, noise)
        for k in (1, 5, 30):
            best = best_step(task, k)
            shrink = k / (k + d + 1 + noise)
            np.testing.assert_allclose(best.model.Gamma, shrink * np.eye(d), atol=1e-14)
            expected = d * (1 - shrink) + noise
            measured("relative error", best.risk / expected - 1, below=1e-12)
            np.testing.assert_allclose(step_size(task, k), shrink, rtol=1e-12)
            expected = d * (d + 1 + noise) / k + noise
            np.testing.assert_allclose(averaging_risk(task, k), expected)


# --- simulation


@pytest.mark.statement("Garg: least squares", "Garg: averaging")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("predictor", "exact"),
    [
        (LeastSquares(), least_squares_risk),
        (Averaging(), averaging_risk),
        (Zero(), lambda task, k: zero_risk(task)),
    ],
)
def test_simulation_agrees_for_least_squares_averaging_and_zero_at_d_20(
    predictor, exact, measured
):
    found = simulate(predictor, garg(), 2000, 40)
    curve = jax.jit(jax.vmap(functools.partial(exact, garg())))(np.arange(41))
    exact_fit = predictor == LeastSquares()
    random = slice(0, 20) if exact_fit else slice(None)
    assert_agree(measured, found, curve, random)
    if exact_fit:
        np.testing.assert_allclose(np.asarray(found.mean)[20:], 0, atol=1e-10)


@pytest.mark.statement("Garg: least squares")
@pytest.mark.slow
def test_least_squares_with_noise_below_and_above_d(measured):
    task = LinearPopulation(0.5 * np.eye(6), np.ones(6), 2 * np.eye(6), 0.3)
    found = simulate(LeastSquares(), task, 8000, 30)
    exact = jax.jit(jax.vmap(functools.partial(least_squares_risk, task)))
    exact = np.asarray(exact(np.arange(31)))
    # within 4 of d the squared error has no variance, so no z-score
    assert_agree(measured, found, np.array(exact), slice(0, 3), "z below d")
    assert_agree(measured, found, np.array(exact), slice(11, None), "z above d")
    assert np.all(np.isinf(exact[5:8]))
    assert np.isclose(exact[8], 0.3 * 6 + 0.3)
    assert np.isclose(exact[0], 0.5 * (12 + 6) + 0.3)


@pytest.mark.statement("Garg: least squares")
def test_least_squares_beyond_d_is_the_same_for_every_input_covariance(measured):
    task = full_task(0.5)
    exact = least_squares_risk(task, 12)
    np.testing.assert_allclose(exact, 0.5 * 3 / 8 + 0.5, rtol=1e-12)
    drawn = {"key": jax.random.key(0), "num_prompts": 4000}
    average = estimate_risk(Ridge(0.0), task, 12, **drawn)
    measured("z", (average.mean - exact) / average.standard_error, below=5)
    # without full rank the rank stands in place of d
    for rank, share in ((2, 2 / 9), (1, 1 / 10), (0, 0.0)):
        H = np.diag([2.0, 0.5, 1.0] * (np.arange(3) < rank))
        flat = LinearPopulation(H, np.ones(3), np.eye(3), 0.5)
        found = least_squares_risk(flat, 12)
        np.testing.assert_allclose(found, 0.5 * share + 0.5, rtol=1e-12)
    # and is not below d: the restriction to multiples of the identity is needed
    with raises("population: expected isotropic inputs where num_examples < dim"):
        least_squares_risk(task, 2)
    skewed = LinearPopulation(np.diag([4.0, 1.0, 0.1]), np.zeros(3), np.eye(3), 0.0)
    average = estimate_risk(Ridge(0.0), skewed, 1, **drawn)
    isotropic = float(zero_risk(skewed)) * (1 - 1 / 3)
    measured("below d, other covariance: share", average.mean / isotropic)
    assert average.mean + 20 * average.standard_error < isotropic


@pytest.mark.statement("Zhang: Section 5 (one layer)")
@pytest.mark.slow
def test_attention_and_averaging_for_any_population(measured):
    task = full_task(0.5)
    exact = jax.jit(jax.vmap(lambda k, Gamma: step_risk(task, k, Gamma), (0, None)))
    counts = np.arange(10)
    for Gamma in (np.eye(3), 0.3 * np.random.default_rng(2).normal(size=(3, 3))):
        found = simulate(Steps([1.0], Gamma), task, 20_000, 9)
        assert_agree(measured, found, exact(counts, Gamma))
    noisy = jax.jit(jax.vmap(functools.partial(averaging_risk, task)))(counts)
    np.testing.assert_allclose(noisy, exact(counts, np.eye(3)), rtol=1e-12)


@pytest.mark.statement("Zhang: Section 5 (one layer)")
def test_the_risk_of_a_fixed_preconditioner_is_also_that_of_other_lengths(measured):
    # a matrix tuned for k = 4 and used at k = 9 is worse than one tuned for 9
    task = full_task(0.5)
    best = [best_step(task, k) for k in (4, 9)]
    used = risk(best[0].model, task, 9)
    measured("excess of the matrix of k = 4 at k = 9", used / best[1].risk - 1)
    assert best[1].risk < used < best[0].risk


# --- the optimum of one layer


@pytest.mark.statement("Zhang: Theorem 5.2 (one layer)")
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), k=st.sampled_from([1, 4, 50]))
def test_the_optimum_of_one_layer_is_stationary_and_has_the_stated_risk(
    seed, k, measured
):
    H, mean, Psi, noise = _population(seed)
    least, gradient, at, near, slope = _optimum(
        H, mean, Psi, noise, k, np.random.default_rng(seed).normal(size=(3, 3))
    )
    scale = np.abs(np.asarray(H)).max() ** 2 * np.abs(np.asarray(Psi)).max() + 1
    measured("gradient at the optimum", np.abs(gradient).max() / scale)
    measured("relative error of its risk", at / least - 1, below=1e-9)
    np.testing.assert_allclose(gradient, 0, atol=1e-9 * scale)
    assert near >= least * (1 - 1e-12)
    np.testing.assert_allclose(slope, 0, atol=1e-9 * scale)


def _population(seed):
    rng = np.random.default_rng(seed)
    A, C = rng.normal(size=(2, 3, 3))
    return A @ A.T, rng.normal(size=3), C @ C.T, rng.uniform()


@jax.jit
def _optimum(H, mean, Psi, noise, k, direction):
    task = LinearPopulation(H, mean, Psi, noise)
    best = best_step(task, k)
    of, Gamma = functools.partial(step_risk, task, k), best.model.Gamma
    slope = jax.grad(lambda e: of(e * jnp.eye(3)))(step_size(task, k))
    near = of(Gamma + 0.01 * direction)
    return best.risk, jax.grad(of)(Gamma), of(Gamma), near, slope


@pytest.mark.statement("Ahn: Theorem 1, optimum", "Zhang: Theorem 5.2 (one layer)")
def test_the_optimum_for_an_isotropic_prior_is_the_published_matrix(measured):
    A = np.random.default_rng(0).normal(size=(4, 4))
    H, psi2, noise, n = A @ A.T, 1.7, 0.6, 11
    task = LinearPopulation(H, np.zeros(4), psi2 * np.eye(4), noise)
    expected = np.linalg.inv(
        (np.trace(H) + noise / psi2) / n * np.eye(4) + (n + 1) / n * H
    )
    best = best_step(task, n)
    measured("error of Gamma", np.abs(best.model.Gamma - expected).max())
    np.testing.assert_allclose(best.model.Gamma, expected, rtol=1e-9, atol=1e-12)
    identity = np.eye(4) * (np.trace(H) + noise / psi2) / n + H / n
    expected_risk = noise + psi2 * np.trace(expected @ H @ identity)
    measured("relative error of its risk", best.risk / expected_risk - 1, below=1e-10)


@pytest.mark.statement("Zhang: Theorem 5.2 (one layer)")
@pytest.mark.slow
def test_the_optimum_also_for_singular_covariances_and_without_examples():
    H, Psi = np.diag([2.0, 0.0, 1.0]), np.diag([0.0, 1.0, 3.0])
    task = LinearPopulation(H, np.zeros(3), Psi, 0.1)
    best = best_step(task, 7)
    one = LinearPopulation(np.eye(1), np.zeros(1), 3 * np.eye(1), 0.1)
    np.testing.assert_allclose(best.risk, best_step(one, 7).risk, rtol=1e-12)
    none = best_step(task, 0)
    np.testing.assert_array_equal(none.model.Gamma, np.zeros((3, 3)))
    np.testing.assert_allclose(none.risk, zero_risk(task), rtol=1e-12)
    assert step_size(task, 0) == 0
    np.testing.assert_allclose(averaging_risk(task, 0), zero_risk(task), rtol=1e-12)


# --- all of them


@pytest.mark.statement("Zhang: Section 5 (one layer)")
@pytest.mark.slow
def test_exact_risks_are_differentiable_and_vectorise(key, measured):
    @jax.jit
    def total(noise):
        task = LinearPopulation(jnp.eye(3), jnp.zeros(3), jnp.eye(3), noise)
        X = jax.random.normal(key, (4, 3))
        risks = jax.vmap(lambda k: averaging_risk(task, k))(jnp.arange(1, 5))
        return (
            risks.sum()
            + best_step(task, 4).risk
            + Ridge(0.3).risk_given(task, X)
            + Bayes(task).risk_given(task, X)
            + Bayes(task).risks_given(task, X).sum()
        )

    difference = (total(0.5 + 1e-6) - total(0.5 - 1e-6)) / 2e-6
    gradient = jax.jit(jax.grad(total))(0.5)
    measured("gradient against differences", gradient / difference - 1, below=1e-6)


@pytest.mark.statement("Zhang: Section 5 (one layer)")
def test_impossible_risks_say_what_was_expected(key):
    task = full_task()
    with raises("num_examples: expected a whole number >= 0, got -1"):
        averaging_risk(task, -1)
    with raises("num_examples: expected a whole number >= 0, got -1"):
        best_step(task, -1)
    with raises("Gamma: expected shape (3, 3), got (2, 2)"):
        step_risk(task, 4, np.eye(2))
