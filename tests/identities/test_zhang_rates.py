"""Corollary 6.2: the effective dimension and the rate of the best GD-beta."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.regression import LinearPopulation, orders
from tests.regression import oracles_ltb_rates as oracles

pytestmark = pytest.mark.statement("Zhang: Corollary 6.2")

DIM, COUNT = 24, 300
LENGTHS = np.array([1, 3, 10, 30, 80])


def of_spectrum(phi, noise_var):
    d = phi.shape[-1]
    cov = jnp.diag(phi) if isinstance(phi, jax.Array) else np.diag(phi)
    return LinearPopulation(cov, np.zeros(d), np.eye(d), noise_var)


least_of = jax.jit(lambda *given: reg.optimum(reg.LTB, *given).risk)


@jax.jit
@jax.vmap
def computed(phi, noise_var, num_examples):
    problem = of_spectrum(phi, noise_var)
    return orders.rates(problem, num_examples), least_of(problem, num_examples)


@functools.cache
def spectra():
    """300 spectra of up to 24 directions: phi, sigma^2, c, M, what the library says."""
    rng = np.random.default_rng(0)
    powers = np.arange(1.0, DIM + 1)[None] ** -rng.uniform(0, 2.5, (COUNT, 1))
    used = np.arange(DIM)[None] < rng.integers(1, DIM + 1, (COUNT, 1))
    phi = np.where(used, powers, 0)
    phi /= phi.sum(axis=1, keepdims=True)
    c = 10 ** rng.uniform(-2, 0.5, COUNT)
    M = LENGTHS[np.arange(COUNT) % 5]
    return phi, 1 / c, c, M, *computed(phi, 1 / c, M)


def test_effective_dimension_counts_directions_above_the_noise(measured):
    phi, noise_var, _, M, rate, _ = spectra()
    dimension = rate.effective_dimension
    expected = np.array(
        [
            sum(min(1.0, m * p / s) for p in row)
            for row, s, m in zip(phi, noise_var, M, strict=True)
        ]
    )
    measured("relative error", dimension / expected - 1, below=1e-12)
    total = [
        sum(min(p, s / m) for p in row)
        for row, s, m in zip(phi, noise_var, M, strict=True)
    ]
    np.testing.assert_allclose(rate.threshold_sum, total, rtol=1e-12)
    np.testing.assert_allclose(noise_var * dimension / M, total, rtol=1e-12)


def test_effective_dimension_of_singular_covariances_and_without_noise(measured):
    rng = np.random.default_rng(0)
    H, Psi = oracles.random_cov(rng, 5, 4), oracles.random_cov(rng, 5, 3)
    phi = np.linalg.eigvalsh(oracles.root(H) @ Psi @ oracles.root(H)).clip(0)
    for noise_var in (0.3, 7.0):
        problem = LinearPopulation(H, np.ones(5), Psi, noise_var)
        expected = np.minimum(1, 6 * phi / noise_var).sum()
        got = float(orders.rates(problem, 6).effective_dimension)
        measured("relative error", got / expected - 1, below=1e-12)
    exact = LinearPopulation(H, np.ones(5), Psi, 0.0)
    rate = orders.rates(exact, 6)
    assert rate.effective_dimension == np.linalg.matrix_rank(H @ Psi)
    assert rate.best_step.lower == rate.threshold_sum == 0
    assert np.isinf(rate.constant)
    assert rate.best_step.lower <= least_of(exact, 6) <= rate.best_step.upper


def test_rate_of_the_best_gd_beta_with_explicit_constants(measured):
    phi, noise_var, c, M, rate, least = spectra()
    total = np.minimum(phi, (noise_var / M)[:, None]).sum(axis=1)
    bounds = rate.best_step
    np.testing.assert_allclose(bounds.lower, noise_var + total / 3, rtol=1e-13)
    expected = noise_var + (1 + 2 * c) * total
    np.testing.assert_allclose(bounds.upper, expected, rtol=1e-12)
    np.testing.assert_allclose(rate.constant, c, rtol=1e-12)
    # the excess from the eigenvalues, not as a difference of risks
    tau = (phi.sum(axis=1) + noise_var)[:, None]
    excess = np.sum(phi * (phi + tau) / ((M[:, None] + 1) * phi + tau), axis=1)
    np.testing.assert_allclose(least, noise_var + excess, rtol=1e-13)
    np.testing.assert_allclose(rate.sandwich.upper, least, rtol=1e-13)
    measured("least excess over a third of the sum", (3 * excess / total).min())
    measured(
        "largest excess over (1 + 2c) of the sum", (excess / total / (1 + 2 * c)).max()
    )
    assert np.all(excess >= total / 3)
    assert np.all(excess <= (1 + 2 * c) * total)
    assert np.all(bounds.lower <= least)
    assert np.all(least <= bounds.upper)


def test_rate_holds_under_its_condition_and_can_fail_without(measured):
    # sigma^2 -> 0 at tr(H Psi) = 1: the best step is far above the Bayes rate
    problem = of_spectrum(np.array([1.0, 0.5]) / 1.5, 1e-4)
    honest = orders.rates(problem, 50)
    assert honest.holds
    np.testing.assert_allclose(honest.constant, 1e4, rtol=1e-12)
    least = float(least_of(problem, 50))
    assert least <= honest.best_step.upper
    claimed = orders.rates(problem, 50, constant=1.0)
    assert not claimed.holds
    share = (least - 1e-4) / (float(claimed.best_step.upper) - 1e-4)
    measured("excess over a bound whose condition fails", share)
    assert share > 100
    generous = orders.rates(problem, 50, constant=2e4)
    assert generous.holds
    np.testing.assert_allclose(generous.constant, 2e4)
    assert generous.best_step.upper > honest.best_step.upper


@pytest.mark.slow
def test_rates_are_differentiable_and_vectorise(measured):
    H = np.array([[2.0, 0.5], [0.5, 1.0]])
    Psi = np.array([[1.0, 0.2], [0.2, 0.5]])

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1, 2))
    def total(scale, mixing, noise_var):
        problem = LinearPopulation(
            scale * H, jnp.ones(2), Psi + mixing * jnp.eye(2), noise_var
        )
        rate = orders.rates(problem, 3)
        bounds = (rate.best_step, rate.sandwich, rate.average, rate.likely)
        return rate.effective_dimension + sum(b.lower + b.upper for b in bounds)

    at = (1.0, 0.1, 1.5)
    for i, got in enumerate(total(*at)[1]):
        step = 1e-6 * np.eye(3)[i]
        difference = (total(*(at + step))[0] - total(*(at - step))[0]) / 2e-6
        measured("gradient against differences", got / difference - 1, below=1e-6)


def test_rates_are_differentiable_where_eigenvalues_of_h_coincide(measured):
    @jax.jit
    @jax.grad
    def slope(h):
        return orders.rates(of_spectrum(h * jnp.ones(2), 0.5), 3).sandwich.lower

    # d/dh of 2 h s / (s + 3 h)
    expected = 2 * 0.25 / 6.5**2
    measured("relative error", slope(2.0) / expected - 1, below=1e-12)
