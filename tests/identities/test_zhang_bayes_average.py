"""The average Bayes risk, the sandwich around it and its rate (Lemma 6.1)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression import Bayes, LinearPopulation, estimate_risk, orders
from tests.regression import oracles_ltb_rates as oracles


def of_spectrum(phi, noise_var):
    d = len(phi)
    cov = jnp.diag(phi) if isinstance(phi, jax.Array) else np.diag(phi)
    return LinearPopulation(cov, np.zeros(d), np.eye(d), noise_var)


# --- the average


@functools.partial(jax.jit, static_argnums=(1, 3))
def average_risk(problem, num_examples, key, num_prompts):
    drawn = {"key": key, "num_prompts": num_prompts}
    return estimate_risk(Bayes(problem), problem, num_examples, **drawn)


@functools.partial(jax.jit, static_argnums=2)
def average_in_one_dimension(phi, noise_var, num_examples):
    problem = LinearPopulation(phi[None, None], jnp.ones(1), jnp.eye(1), noise_var)
    return average_risk(problem, num_examples, jax.random.key(0), 40_000)


@pytest.mark.statement("Zhang: Lemma 6.1, average")
@pytest.mark.slow
def test_average_risk_in_one_dimension_is_a_chi_square_integral(measured):
    golden = oracles.chi_square_average(2.0, 0.25, 3)
    np.testing.assert_allclose(golden, 0.164662268434, rtol=0, atol=5.1e-13)
    for phi, noise_var, M in ((2.0, 0.25, 3), (0.3, 1.0, 3)):
        exact = noise_var + oracles.chi_square_average(phi, noise_var, M)
        mean, error = average_in_one_dimension(phi, noise_var, M)
        measured("z", (mean - exact) / error)
        assert abs(mean - exact) < 4 * error
        assert 0 < error < 3e-3 * exact


@pytest.mark.statement("Zhang: Lemma 6.1, average")
@pytest.mark.parametrize(
    "num_examples",
    [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4))],
)
def test_average_risk_is_that_of_drawn_inputs(num_examples, measured):
    # below, at and above d = 3, where triangular factors stand for the inputs
    n, rng = 10_000, np.random.default_rng(num_examples)
    H, Psi = oracles.random_cov(rng, 3), oracles.random_cov(rng, 3, 2)
    A = rng.normal(size=(n, num_examples, 3)) @ oracles.root(H) @ oracles.root(Psi)
    inner = np.linalg.inv(np.swapaxes(A, 1, 2) @ A + 0.3 * np.eye(3))
    weight = oracles.root(Psi) @ H @ oracles.root(Psi)
    risks = 0.3 + 0.3 * np.einsum("ij,nji->n", weight, inner)
    problem = LinearPopulation(H, np.ones(3), Psi, 0.3)
    mean, error = average_risk(problem, num_examples, jax.random.key(1), n)
    z = (mean - risks.mean()) / np.hypot(error, risks.std() / np.sqrt(n))
    measured("z", z, below=4)
    # the spread is the same, too, within what the fourth moment allows
    centred = risks - risks.mean()
    kurtosis = np.mean(centred**4) / np.mean(centred**2) ** 2
    z = (error * np.sqrt(n) / risks.std() - 1) / np.sqrt((kurtosis - 1) / (2 * n))
    measured("z of the spread", z, below=4)


@pytest.mark.statement("Zhang: Lemma 6.1, average")
@pytest.mark.slow
def test_average_risk_is_the_error_of_the_estimate_on_prompts(measured):
    rng = np.random.default_rng(0)
    H, Psi = oracles.random_cov(rng, 3), oracles.random_cov(rng, 3)
    problem = LinearPopulation(H, rng.normal(size=3), Psi, 0.5)

    @jax.jit
    def errors(key):
        prompt = problem.sample(key, 5, 20_000)
        w = jax.vmap(Bayes(problem).weights)(prompt.X, prompt.y)
        return (jnp.sum(w * prompt.x_query, axis=1) - prompt.y_query) ** 2

    sample = np.asarray(errors(jax.random.key(0)))
    mean, error = average_risk(problem, 5, jax.random.key(1), 20_000)
    simulated = sample.std() / np.sqrt(len(sample))
    measured("z", (sample.mean() - mean) / np.hypot(error, simulated), below=4)
    measured("its standard error over that of squared errors", error / simulated)
    assert error < 0.3 * simulated


@pytest.mark.statement("Zhang: Lemma 6.1, average")
@pytest.mark.slow
def test_average_risk_with_many_examples(measured):
    # M (E R - sigma^2) -> sigma^2 rank(Phi)
    M = 1_000_000
    problem = of_spectrum(np.array([1.0, 0.3, 0.1, 0.0]), 0.7)
    mean, error = average_risk(problem, M, jax.random.key(0), 200)
    limit = M * (float(mean) - 0.7) / (0.7 * 3)
    measured("relative distance from the limit", limit - 1, below=3e-4)
    assert M * error < 1e-3


@pytest.mark.statement("Zhang: Lemma 6.1, average")
@pytest.mark.slow
def test_average_risk_is_differentiable_and_vectorises(measured):
    H = np.array([[2.0, 0.5], [0.5, 1.0]])

    @jax.jit
    def mean(noise_var):
        problem = LinearPopulation(H, jnp.zeros(2), jnp.eye(2), noise_var)
        return average_risk(problem, 2, jax.random.key(0), 50).mean

    difference = (mean(0.25 + 1e-6) - mean(0.25 - 1e-6)) / 2e-6
    gradient = jax.jit(jax.grad(mean))(0.25)
    measured("gradient against differences", gradient / difference - 1, below=1e-7)
    several = jax.jit(jax.vmap(mean))(jnp.array([0.25, 1.0]))
    np.testing.assert_allclose(several[0], mean(0.25), rtol=1e-12)


# --- the sandwich and the rate

DIM, PER_LENGTH = 8, 40


@functools.cache
def spectra():
    """80 spectra of up to 8 directions with what the library says of them.

    For each M: phi (n, d), noise_var, c (n,), average risk, its error, rates.
    """

    @functools.partial(jax.jit, static_argnums=2)
    @functools.partial(jax.vmap, in_axes=(0, 0, None, 0))
    def averages(phi, noise_var, num_examples, key):
        problem = of_spectrum(phi, noise_var)
        return average_risk(problem, num_examples, key, 500)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, 0, None))
    def bounds(phi, noise_var, num_examples):
        problem = of_spectrum(phi, noise_var)
        return orders.rates(problem, num_examples)

    found = {}
    for M in (3, 40):
        rng = np.random.default_rng(M)
        powers = np.arange(1.0, DIM + 1)[None] ** -rng.uniform(0, 2.5, (PER_LENGTH, 1))
        used = np.arange(DIM)[None] < rng.integers(1, DIM + 1, (PER_LENGTH, 1))
        phi = np.where(used, powers, 0)
        phi /= phi.sum(axis=1, keepdims=True)
        c = 10 ** rng.uniform(-2, 0.5, PER_LENGTH)
        keys = jax.random.split(jax.random.key(M), PER_LENGTH)
        mean, error = averages(phi, 1 / c, M, keys)
        said = bounds(phi, 1 / c, M)
        found[M] = phi, 1 / c, c, np.asarray(mean), np.asarray(error), said
    return found


@pytest.mark.statement("Zhang: Section 6, sandwich")
@pytest.mark.slow
def test_sandwich_around_the_average_risk(measured):
    for M, (phi, noise_var, _, mean, error, rates) in spectra().items():
        noise = noise_var[:, None]
        tau = phi.sum(axis=1, keepdims=True) + noise
        lower = np.sum(phi * noise / (noise + M * phi), axis=1)
        upper = np.sum(phi * (phi + tau) / ((M + 1) * phi + tau), axis=1)
        np.testing.assert_allclose(rates.sandwich.lower, noise_var + lower, rtol=1e-13)
        np.testing.assert_allclose(rates.sandwich.upper, noise_var + upper, rtol=1e-13)
        ratio = 1 + (phi.sum(axis=1) + phi.max(axis=1)) / noise_var
        np.testing.assert_allclose(rates.competitive_ratio, ratio, rtol=1e-12)
        low = ((mean + 4 * error - noise_var) / lower).min()
        high = ((mean - 4 * error - noise_var) / upper).max()
        used = (upper / lower / ratio).max()
        measured(f"least excess over its lower bound, M = {M}", low)
        measured(f"largest excess over its upper bound, M = {M}", high)
        measured("largest share of the competitive ratio", used)
        assert low >= 1
        assert high <= 1
        assert used <= 1


@pytest.mark.statement("Zhang: Section 6, sandwich")
def test_sandwich_without_noise_and_for_covariances_that_do_not_commute():
    found = orders.rates(of_spectrum(np.array([2.0, 0.0, 0.5]), 0.0), 4)
    assert found.sandwich.lower == 0
    assert np.isinf(found.competitive_ratio)
    assert found.sandwich.upper > 0
    rng = np.random.default_rng(0)
    H, Psi = oracles.random_cov(rng, 3), oracles.random_cov(rng, 3, 2)
    phi = np.linalg.eigvalsh(oracles.root(H) @ Psi @ oracles.root(H)).clip(0)
    lower = 0.3 + np.sum(phi * 0.3 / (0.3 + 7 * phi))
    got = orders.rates(LinearPopulation(H, np.ones(3), Psi, 0.3), 7).sandwich
    np.testing.assert_allclose(got.lower, lower, rtol=1e-12)


@pytest.mark.statement("Zhang: Lemma 6.1, rate")
@pytest.mark.slow
def test_rate_of_the_average_risk(measured):
    for M, (phi, noise_var, c, mean, error, rate) in spectra().items():
        total = np.minimum(phi, noise_var[:, None] / M).sum(axis=1)
        np.testing.assert_allclose(rate.threshold_sum, total, rtol=1e-12)
        np.testing.assert_allclose(
            rate.average.lower, noise_var + total / 2, rtol=1e-13
        )
        expected = noise_var + (1 + 2 * c) * total
        np.testing.assert_allclose(rate.average.upper, expected, rtol=1e-12)
        np.testing.assert_allclose(rate.constant, c, rtol=1e-12)
        assert np.all(rate.holds)
        # it follows from the sandwich
        assert np.all(rate.average.lower <= rate.sandwich.lower * (1 + 1e-14))
        assert np.all(rate.sandwich.upper <= rate.average.upper * (1 + 1e-14))
        ratio = (mean - noise_var) / total
        measured(f"least ratio of excess to sum, M = {M}", ratio.min())
        measured(f"largest ratio of excess to sum, M = {M}", ratio.max())
        assert np.all(ratio + 4 * error / total > 0.5)
        assert np.all(ratio - 4 * error / total < 1 + 2 * c)


@functools.partial(jax.jit, static_argnums=2)
@functools.partial(jax.vmap, in_axes=(0, 0, None))
def risks_of_draws(phi, noise_var, num_examples):
    problem = of_spectrum(phi, noise_var)
    X = problem.sample_inputs(jax.random.key(num_examples), num_examples, 200)
    return jax.vmap(lambda X: Bayes(problem).risk_given(problem, X))(X)


@pytest.mark.statement("Zhang: Lemma 6.1, rate")
def test_rate_given_the_inputs_is_observed_on_single_draws(measured):
    # the constants of the paper's high-probability form are not proved here
    M = 3
    phi, noise_var = spectra()[M][:2]
    total = np.minimum(phi, noise_var[:, None] / M).sum(axis=1)
    ratio = np.asarray(risks_of_draws(phi, noise_var, M)) / total[:, None]
    measured("least ratio", ratio.min())
    measured("largest ratio", ratio.max())
    assert ratio.min() > 0.1
    assert ratio.max() < 10
