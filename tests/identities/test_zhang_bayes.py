"""Lemma 6.1: the Bayes estimate and its risk given the inputs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression import Bayes, LinearPopulation
from tests.derivatives import slope_error
from tests.regression import oracles_ltb_rates as oracles

pytestmark = pytest.mark.statement("Zhang: Lemma 6.1, estimate")

H = np.array([[2.0, 0.5], [0.5, 1.0]])
PSI = np.array([[1.0, 0.2], [0.2, 0.5]])
MEAN = np.array([1.0, -2.0])
X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]])
Y = np.array([1.0, -2.0, 2.5])
WORKED = LinearPopulation(H, MEAN, PSI, 0.25)
SHAPES = ((1, 4), (4, 2), (4, 9))  # (d, M): few, so that little is compiled


@jax.jit
def computed(H, Psi, mean, noise_var, X, y):
    """The posterior mean, and its risk given the inputs with the query's noise."""
    problem = LinearPopulation(H, mean, Psi, noise_var)
    rule = Bayes(problem)
    return rule.weights(X, y), rule.risk_given(problem, X) + noise_var


@functools.cache
def instances():
    """40 problems with Psi of any rank from 1, a prompt, and what the library says."""
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        d, M = SHAPES[seed % 3]
        H = oracles.random_cov(rng, d)
        Psi = oracles.random_cov(rng, d, rng.integers(1, d + 1))
        X = rng.normal(size=(M, d)) @ oracles.root(H)
        mean, noise_var = 2 * rng.normal(size=d), rng.uniform(0.3, 1.5) ** 2
        given = H, Psi, mean, noise_var, X, 3 * rng.normal(size=M)
        found.append((given, [np.asarray(value) for value in computed(*given)]))
    return found


# --- the estimate


def test_posterior_mean_is_gaussian_conditioning_and_ridge(measured):
    for (_, Psi, mean, noise_var, X, y), values in instances():
        # The dual form: beta* + Psi X' (X Psi X' + sigma^2 I)^-1 (y - X beta*)
        expected = oracles.posterior_mean(X, y, mean, Psi, noise_var)
        error = np.abs(values[0] - expected).max() / np.abs(expected).max()
        measured("relative error", error, below=1e-12)
        # The primal form, (F.2): penalty sigma^2 on X Psi^{1/2} and y - X beta*
        A = X @ oracles.root(Psi)
        stacked = np.vstack([A, np.sqrt(noise_var) * np.eye(len(mean))])
        target = np.append(y - X @ mean, np.zeros(len(mean)))
        theta = np.linalg.lstsq(stacked, target, rcond=None)[0]
        expected = mean + oracles.root(Psi) @ theta
        error = np.abs(values[0] - expected).max() / np.abs(expected).max()
        measured("relative error", error, below=1e-12)


def test_posterior_mean_of_the_worked_example(measured):
    expected = np.array([0.84229390681, -1.872162485066])
    got = computed(H, PSI, MEAN, 0.25, X, Y)[0]
    measured("error", np.abs(got - expected).max())
    np.testing.assert_allclose(got, expected, rtol=0, atol=5.1e-13)


def test_posterior_mean_without_examples_is_the_prior_mean():
    none = Bayes(WORKED).weights(jnp.zeros((0, 2)), jnp.zeros(0))
    np.testing.assert_array_equal(none, MEAN)


def test_posterior_mean_without_noise_is_the_limit(measured):
    rng = np.random.default_rng(0)
    Psi = oracles.random_cov(rng, 4, 3)
    mean, w = rng.normal(size=(2, 4))
    w = mean + Psi @ w
    problem = LinearPopulation(np.eye(4), mean, Psi, 0.0)
    rows = rng.normal(size=(5, 4))
    for X in (rows[[0, 1, 0]], rows):  # too few and one of them twice; enough
        # the noise is known to be zero: it is no argument of what is traced
        got = np.asarray(jax.jit(Bayes(problem).weights)(X, X @ w))
        # the distance falls in proportion to the noise
        near = [
            np.abs(got - oracles.posterior_mean(X, X @ w, mean, Psi, s)).max()
            for s in (1e-4, 1e-6)
        ]
        measured("distance from noise 1e-6", near[1], below=1e-4)
        np.testing.assert_allclose(near[0] / near[1], 100, rtol=0.05)
        np.testing.assert_allclose(X @ got, X @ w, atol=1e-12)
    np.testing.assert_allclose(got, w, atol=1e-12)


@pytest.mark.slow
def test_posterior_mean_is_differentiable(measured):
    def total(noise_var):
        problem = LinearPopulation(H, MEAN, PSI, noise_var)
        return Bayes(problem).weights(jnp.asarray(X), jnp.asarray(Y)).sum()

    measured("gradient against differences", slope_error(total, 0.25), below=1e-7)


# --- its risk given the inputs


def test_risk_given_is_the_least_risk_of_a_linear_estimate(measured):
    worse = np.inf
    for seed, ((H, Psi, _, noise_var, X, _), values) in enumerate(instances()):
        K = oracles.best_gain(X, Psi, noise_var)
        expected = oracles.linear_estimate_risk(K, X, H, Psi, noise_var)
        measured("relative error", values[1] / expected - 1, below=1e-12)
        moved = K + 0.1 * np.random.default_rng(seed).normal(size=K.shape)
        other = oracles.linear_estimate_risk(moved, X, H, Psi, noise_var)
        worse = min(worse, other - values[1])
    measured("least excess of a perturbed estimate", worse)
    assert worse > 1e-6


def test_risk_given_sees_the_covariances_only_through_phi(measured):
    for (H, Psi, mean, noise_var, X, y), values in instances():
        Phi = oracles.root(H) @ Psi @ oracles.root(H)
        Z = X @ np.linalg.inv(oracles.root(H))
        inverse = np.linalg.inv(np.eye(len(H)) + Z.T @ Z @ Phi / noise_var)
        expected = noise_var + np.trace(Phi @ inverse)
        measured("relative error", values[1] / expected - 1, below=1e-12)
        white = np.eye(len(H)), (Phi + Phi.T) / 2
        np.testing.assert_allclose(
            computed(*white, mean, noise_var, Z, y)[1], expected, rtol=1e-12
        )
