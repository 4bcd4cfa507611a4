"""The average Bayes risk, the sandwich around it, and the rates (6.1 and 6.2)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.regression import Bayes, LinearPopulation, estimate_risk, gaps
from tests.derivatives import slope_error
from tests.regression import oracles_ltb_rates as oracles

# --- the average


@functools.partial(jax.jit, static_argnums=(1, 3))
def average_risk(problem, num_examples, key, num_prompts):
    drawn = {"key": key, "num_prompts": num_prompts}
    return estimate_risk(Bayes(problem), problem, num_examples, **drawn)


@pytest.mark.statement("Zhang: Lemma 6.1, average")
@pytest.mark.slow
def test_average_risk_in_one_dimension_is_a_chi_square_integral(measured):
    golden = oracles.chi_square_average(2.0, 0.25, 3)
    np.testing.assert_allclose(golden, 0.164662268434, rtol=0, atol=5.1e-13)
    for phi, noise_var, M in ((2.0, 0.25, 3), (0.3, 1.0, 3)):
        exact = noise_var + oracles.chi_square_average(phi, noise_var, M)
        problem = LinearPopulation(phi * np.eye(1), noise_var=noise_var)
        mean, error = average_risk(problem, M, jax.random.key(0), 40_000)
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
    problem = LinearPopulation(np.diag([1.0, 0.3, 0.1, 0.0]), noise_var=0.7)
    mean, error = average_risk(problem, M, jax.random.key(0), 200)
    limit = M * (float(mean) - 0.7) / (0.7 * 3)
    measured("relative distance from the limit", limit - 1, below=3e-4)
    assert M * error < 1e-3


@pytest.mark.statement("Zhang: Lemma 6.1, average")
@pytest.mark.slow
def test_average_risk_is_differentiable(measured):
    H = np.array([[2.0, 0.5], [0.5, 1.0]])

    def mean(noise_var):
        problem = LinearPopulation(H, noise_var=noise_var)
        return average_risk(problem, 2, jax.random.key(0), 50).mean

    measured("gradient against differences", slope_error(mean, 0.25), below=1e-7)


# --- the sandwich and the rate

PER_LENGTH = 40


def random_spectra(rng, count, dim):
    """Powers as spectra of trace 1, of which some directions are 0; sigma^2 and c."""
    powers = np.arange(1.0, dim + 1)[None] ** -rng.uniform(0, 2.5, (count, 1))
    used = np.arange(dim)[None] < rng.integers(1, dim + 1, (count, 1))
    phi = np.where(used, powers, 0)
    c = 10 ** rng.uniform(-2, 0.5, count)
    return phi / phi.sum(axis=1, keepdims=True), 1 / c, c


def spectra_of(M):
    """40 spectra of up to 8 directions: phi (n, d), noise_var and c (n,)."""
    return random_spectra(np.random.default_rng(M), PER_LENGTH, 8)


@functools.cache
def averages():
    """What the library says of them, by M: average risk, its error, and rates."""

    @functools.partial(jax.jit, static_argnums=2)
    @functools.partial(jax.vmap, in_axes=(0, 0, None, 0))
    def said(phi, noise_var, M, key):
        problem = LinearPopulation(jnp.diag(phi), noise_var=noise_var)
        return average_risk(problem, M, key, 500), gaps.rates(problem, M)

    found = {}
    for M in (3, 40):
        phi, noise_var, _ = spectra_of(M)
        keys = jax.random.split(jax.random.key(M), PER_LENGTH)
        (mean, error), rates = said(phi, noise_var, M, keys)
        found[M] = np.asarray(mean), np.asarray(error), rates
    return found


@pytest.mark.statement("Zhang: Section 6, sandwich")
@pytest.mark.slow
def test_sandwich_around_the_average_risk(measured):
    for M, (mean, error, rates) in averages().items():
        phi, noise_var, _ = spectra_of(M)
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
    found = gaps.rates(LinearPopulation(np.diag([2.0, 0.0, 0.5]), noise_var=0.0), 4)
    assert found.sandwich.lower == 0
    assert np.isinf(found.competitive_ratio)
    assert found.sandwich.upper > 0
    rng = np.random.default_rng(0)
    H, Psi = oracles.random_cov(rng, 3), oracles.random_cov(rng, 3, 2)
    phi = np.linalg.eigvalsh(oracles.root(H) @ Psi @ oracles.root(H)).clip(0)
    lower = 0.3 + np.sum(phi * 0.3 / (0.3 + 7 * phi))
    got = gaps.rates(LinearPopulation(H, np.ones(3), Psi, 0.3), 7).sandwich
    np.testing.assert_allclose(got.lower, lower, rtol=1e-12)


@pytest.mark.statement("Zhang: Lemma 6.1, rate")
@pytest.mark.slow
def test_rate_of_the_average_risk(measured):
    for M, (mean, error, rate) in averages().items():
        phi, noise_var, c = spectra_of(M)
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
    problem = LinearPopulation(jnp.diag(phi), noise_var=noise_var)
    X = problem.sample_inputs(jax.random.key(num_examples), num_examples, 200)
    return jax.vmap(lambda X: Bayes(problem).risk_given(problem, X))(X)


@pytest.mark.statement("Zhang: Lemma 6.1, rate")
def test_rate_given_the_inputs_is_observed_on_single_draws(measured):
    # the constants of the paper's high-probability form are not proved here
    M = 3
    phi, noise_var, _ = spectra_of(M)
    total = np.minimum(phi, noise_var[:, None] / M).sum(axis=1)
    ratio = np.asarray(risks_of_draws(phi, noise_var, M)) / total[:, None]
    measured("least ratio", ratio.min())
    measured("largest ratio", ratio.max())
    assert ratio.min() > 0.1
    assert ratio.max() < 10


# --- the rate of the best GD-beta (Corollary 6.2)

LENGTHS = np.array([1, 3, 10, 30, 80])
least_of = jax.jit(lambda *given: reg.optimum(reg.LTB, *given).risk)


@jax.jit
@jax.vmap
def computed(phi, noise_var, num_examples):
    problem = LinearPopulation(jnp.diag(phi), noise_var=noise_var)
    return gaps.rates(problem, num_examples), least_of(problem, num_examples)


@functools.cache
def spectra():
    """300 spectra of up to 24 directions: phi, sigma^2, c, M, what the library says."""
    phi, noise_var, c = random_spectra(np.random.default_rng(0), 300, 24)
    M = LENGTHS[np.arange(300) % 5]
    return phi, noise_var, c, M, *computed(phi, noise_var, M)


@pytest.mark.statement("Zhang: Corollary 6.2")
def test_effective_dimension_counts_directions_above_the_noise(measured):
    phi, noise_var, _, M, rate, _ = spectra()
    problems = [*zip(phi, noise_var, M, strict=True)]
    expected = np.array([sum(min(1, m * p / s) for p in row) for row, s, m in problems])
    measured("relative error", rate.effective_dimension / expected - 1, below=1e-12)
    total = [sum(min(p, s / m) for p in row) for row, s, m in problems]
    np.testing.assert_allclose(rate.threshold_sum, total, rtol=1e-12)


@pytest.mark.statement("Zhang: Corollary 6.2")
def test_effective_dimension_of_singular_covariances_and_without_noise(measured):
    rng = np.random.default_rng(0)
    H, Psi = oracles.random_cov(rng, 5, 4), oracles.random_cov(rng, 5, 3)
    phi = np.linalg.eigvalsh(oracles.root(H) @ Psi @ oracles.root(H)).clip(0)
    for noise_var in (0.3, 7.0):
        problem = LinearPopulation(H, np.ones(5), Psi, noise_var)
        expected = np.minimum(1, 6 * phi / noise_var).sum()
        got = float(gaps.rates(problem, 6).effective_dimension)
        measured("relative error", got / expected - 1, below=1e-12)
    exact = LinearPopulation(H, np.ones(5), Psi, 0.0)
    rate = gaps.rates(exact, 6)
    assert rate.effective_dimension == np.linalg.matrix_rank(H @ Psi)
    assert rate.best_step.lower == rate.threshold_sum == 0
    assert np.isinf(rate.constant)
    assert rate.best_step.lower <= least_of(exact, 6) <= rate.best_step.upper


@pytest.mark.statement("Zhang: Corollary 6.2")
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
    low, high = (3 * excess / total).min(), (excess / total / (1 + 2 * c)).max()
    measured("least excess over a third of the sum", low)
    measured("largest excess over (1 + 2c) of the sum", high)
    assert high <= 1 <= low
    assert np.all((bounds.lower <= least) & (least <= bounds.upper))


@pytest.mark.statement("Zhang: Corollary 6.2")
def test_rate_holds_under_its_condition_and_can_fail_without(measured):
    # sigma^2 -> 0 at tr(H Psi) = 1: the best step is far above the Bayes rate
    problem = LinearPopulation(np.diag([1.0, 0.5]) / 1.5, noise_var=1e-4)
    honest = gaps.rates(problem, 50)
    assert honest.holds
    np.testing.assert_allclose(honest.constant, 1e4, rtol=1e-12)
    least = float(least_of(problem, 50))
    assert least <= honest.best_step.upper
    claimed = gaps.rates(problem, 50, constant=1.0)
    assert not claimed.holds
    share = (least - 1e-4) / (float(claimed.best_step.upper) - 1e-4)
    measured("excess over a bound whose condition fails", share)
    assert share > 100
    generous = gaps.rates(problem, 50, constant=2e4)
    assert generous.holds
    np.testing.assert_allclose(generous.constant, 2e4)
    assert generous.best_step.upper > honest.best_step.upper


@pytest.mark.statement("Zhang: Corollary 6.2")
@pytest.mark.slow
def test_rates_are_differentiable(measured):
    H = np.array([[2.0, 0.5], [0.5, 1.0]])
    Psi = np.array([[1.0, 0.2], [0.2, 0.5]])

    def total(scale, mixing, noise_var):
        tasks = Psi + mixing * jnp.eye(2)
        problem = LinearPopulation(scale * H, jnp.ones(2), tasks, noise_var)
        rate = gaps.rates(problem, 3)
        bounds = (rate.best_step, rate.sandwich, rate.average, rate.likely)
        return rate.effective_dimension + sum(b.lower + b.upper for b in bounds)

    error = slope_error(total, 1.0, 0.1, 1.5)
    measured("gradient against differences", error, below=1e-6)


@pytest.mark.statement("Zhang: Corollary 6.2")
def test_rates_are_differentiable_where_eigenvalues_of_h_coincide(measured):
    @jax.jit
    @jax.grad
    def slope(h):
        return gaps.rates(
            LinearPopulation(h * jnp.eye(2), noise_var=0.5), 3
        ).sandwich.lower

    # d/dh of 2 h s / (s + 3 h)
    expected = 2 * 0.25 / 6.5**2
    measured("relative error", slope(2.0) / expected - 1, below=1e-12)
