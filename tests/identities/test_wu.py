"""Wu et al. (2024): the best single gradient step, and other prompt lengths."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.regression import LinearPopulation
from tests.regression import oracles_ltb_rates as oracles

DIM = 3


@jax.jit
def computed(H, mean, Psi, noise_var, N, Gamma):
    problem = LinearPopulation(H, mean, Psi, noise_var)
    optimum = reg.optimum(reg.LinearStep, problem, N)
    return optimum.model.Gamma, optimum.risk, one_step_excess(problem, N, Gamma)


def one_step_excess(problem, N, Gamma):
    """Excess over the best linear step, for which only the second moment matters."""
    mean, second = 0 * problem.task_mean, problem.second_moment
    centred = problem.with_(task_mean=mean, task_cov=second)
    return reg.excess(reg.LinearStep(Gamma), centred, N).total


@jax.jit
def transferred(H, mean, Psi, noise_var, N, M):
    """Risk with M examples of the best step for N, its excess, and the least risk."""
    problem = LinearPopulation(H, mean, Psi, noise_var)
    step = reg.optimum(reg.GDBeta, problem, N).model
    least = reg.optimum(reg.LTB, problem, M).risk
    return reg.risk(step, problem, M), reg.excess(step, problem, M).total, least


def drawn(seed):
    rng = np.random.default_rng(seed)
    H, N = oracles.random_cov(rng, DIM), int(rng.integers(1, 30))
    psi2, noise_var = rng.uniform(0.3, 2, size=2) ** 2
    return rng, H, psi2, noise_var, N


@pytest.mark.statement("Wu: Theorem 3.1")
def test_optimum_of_one_step_is_the_published_matrix(measured):
    for seed in range(20):
        rng, H, psi2, noise_var, N = drawn(seed)
        Gamma = rng.normal(size=(DIM, DIM))
        problem = H, np.zeros(DIM), psi2 * np.eye(DIM), noise_var
        best, risk, excess = computed(*problem, N, Gamma)
        mu = (np.trace(H) + noise_var / psi2) / N
        published = np.linalg.inv(mu * np.eye(DIM) + (N + 1) / N * H)
        error = np.abs(best - published).max() / np.abs(published).max()
        measured("relative error of Gamma", error, below=1e-12)
        # <H, D Ht D'> with Ht from Isserlis' theorem
        feature = oracles.feature_second_moment(H, psi2 * np.eye(DIM), noise_var, N)
        np.testing.assert_allclose(feature, psi2 * H @ np.linalg.inv(published), 1e-10)
        D = Gamma - published
        np.testing.assert_allclose(excess, np.sum(H * (D @ feature @ D.T)), rtol=1e-10)
        least = np.trace(published @ H @ (mu * np.eye(DIM) + H / N))
        expected = noise_var + psi2 * least
        measured("relative error of the risk", risk / expected - 1, below=1e-12)


@pytest.mark.statement("Wu: Theorem 3.1")
def test_risk_of_any_step_is_the_least_plus_the_excess(measured):
    for seed in range(20):
        rng, H, psi2, noise_var, N = drawn(seed)
        mean = rng.normal(size=DIM) * (seed % 2)  # any prior, too
        Psi = psi2 * (oracles.random_cov(rng, DIM) if seed % 2 else np.eye(DIM))
        Gamma = rng.normal(size=(DIM, DIM))
        _, risk, excess = computed(H, mean, Psi, noise_var, N, Gamma)
        second_moment = Psi + np.outer(mean, mean)
        expected = oracles.one_step_risk(Gamma, H, second_moment, noise_var, N)
        measured("relative error", (risk + excess) / expected - 1, below=1e-12)


@pytest.mark.statement("Wu: Section 5, risk at another length")
def test_risk_at_another_length_is_exact(measured):
    for seed in range(20):
        rng, H, psi2, noise_var, N = drawn(seed)
        M = int(rng.integers(1, 60))
        Psi = psi2 * (oracles.random_cov(rng, DIM, 2) if seed % 2 else np.eye(DIM))
        problem = H, np.zeros(DIM), Psi, noise_var
        tuned, *_ = computed(*problem, N, np.eye(DIM))
        risk, excess, least = transferred(*problem, N, M)
        expected = oracles.one_step_risk(np.asarray(tuned), H, Psi, noise_var, M)
        measured("relative error of the risk", risk / expected - 1, below=1e-12)
        # the published sum over the spectrum
        _, best, _ = computed(*problem, M, np.eye(DIM))
        np.testing.assert_allclose(least, best, rtol=1e-12)
        summed = spectral_excess(H, Psi, noise_var, N, M)
        np.testing.assert_allclose(excess, summed, rtol=1e-6, atol=1e-13)
        assert excess >= 0
        assert transferred(*problem, N, N)[1] == 0
        # a prior mean is the start of the step
        started = transferred(H, np.ones(DIM), Psi, noise_var, N, M)
        np.testing.assert_allclose(started[0], risk, rtol=1e-11)


def spectral_excess(H, Psi, noise_var, N, M):
    """sum_i phi_i^2 omega_iM (1 / omega_iN - 1 / omega_iM)^2."""
    phi = np.linalg.eigvals(H @ Psi).real
    tau = phi.sum() + noise_var
    omega_N, omega_M = (((n + 1) * phi + tau) / n for n in (N, M))
    return np.sum(phi**2 * omega_M * (1 / omega_N - 1 / omega_M) ** 2)


@pytest.mark.statement("Wu: Section 5, rate at another length")
def test_rate_at_another_length_is_two_sided(measured):
    count, d = 200, 12
    rng = np.random.default_rng(0)
    powers = np.arange(1.0, d + 1)[None] ** -rng.uniform(0, 2.5, (count, 1))
    lam = np.where(np.arange(d)[None] < rng.integers(2, d + 1, (count, 1)), powers, 0)
    lam *= 10 ** rng.uniform(-2, 0, (count, 1)) / lam.sum(axis=1, keepdims=True)
    N = np.floor(10 ** rng.uniform(0, 3, count))
    M = np.maximum(1, np.floor(N * 10 ** rng.uniform(-2, 1, count)))
    psi2, factor = 10 ** rng.uniform([[-1], [0]], 1, (2, count))
    noise_var = factor * psi2  # psi^2 tr(H) <= sigma^2

    @jax.jit
    @jax.vmap
    def moved(lam, psi2, noise_var, N, M):
        problem = LinearPopulation(
            jnp.diag(lam), jnp.zeros(d), psi2 * jnp.eye(d), noise_var
        )
        N, M = N.astype(int), M.astype(int)
        step = reg.optimum(reg.GDBeta, problem, N).model
        rate = reg.transfer.length_transfer_rate(problem, N, M)
        return reg.risk(step, problem, M), rate

    risk, rate = moved(lam, psi2, noise_var, N, M)
    # the rate as the paper writes it, in lambda and psi^2
    mu_N, mu_M = ((noise_var / psi2 / n)[:, None] for n in (N, M))
    with np.errstate(divide="ignore"):
        second = np.minimum(lam / mu_N**2, 1 / lam) * np.minimum(lam / mu_M, 1)
    written = np.minimum(mu_M, lam) + (mu_M - mu_N) ** 2 * second
    expected = psi2 * written.sum(axis=1)
    np.testing.assert_allclose(rate, expected, rtol=1e-10)
    tau = psi2 * lam.sum(axis=1) + noise_var
    phi = psi2[:, None] * lam
    lengths = N[:, None], M[:, None]
    omega_N, omega_M = (((n + 1) * phi + tau[:, None]) / n for n in lengths)
    spread = phi * (phi + tau[:, None]) / M[:, None] / omega_M
    missed = phi**2 * omega_M * (1 / omega_N - 1 / omega_M) ** 2
    excess = np.sum(spread + missed, axis=1)
    np.testing.assert_allclose(risk, noise_var + excess, rtol=1e-11)
    ratio = excess / rate
    measured("least ratio", ratio.min())
    measured("largest ratio", ratio.max())
    # observed, not proved
    assert ratio.min() > 0.1
    assert ratio.max() < 10


@pytest.mark.statement("Wu: Section 5, risk at another length")
def test_length_transfer_of_a_tiny_problem_is_not_lost_in_float32():
    def at(scale):
        parts = scale * np.eye(2), np.zeros(2), scale * np.eye(2), scale**2
        problem = LinearPopulation(*(np.asarray(p, np.float32) for p in parts))
        step = reg.optimum(reg.GDBeta, problem, 5).model
        return float(reg.excess(step, problem, 20).total) / scale**2

    np.testing.assert_allclose(at(1e-8), at(1.0), rtol=1e-5)


@pytest.mark.statement("Wu: Section 5, risk at another length")
@pytest.mark.slow
def test_length_transfer_without_noise_and_its_gradient(measured):
    H = np.diag([2.0, 0.0, 1.0])

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
    def risk(noise_var, scale):
        problem = LinearPopulation(scale * H, jnp.zeros(3), jnp.eye(3), noise_var)
        step = reg.optimum(reg.GDBeta, problem, 5).model
        rate = reg.transfer.length_transfer_rate(problem, 5, 20)
        excess = reg.excess(step, problem, 20).total
        return reg.risk(step, problem, 20) + rate, (rate, excess)

    (_, (rate, excess)), gradient = risk(0.0, 1.0)
    assert np.all(np.isfinite(gradient))
    assert rate == 0
    assert excess > 0
    for i, got in enumerate(risk(0.7, 1.0)[1]):
        step = 1e-6 * np.eye(2)[i]
        ends = [risk(*(np.array([0.7, 1.0]) + s * step))[0][0] for s in (1, -1)]
        difference = (ends[0] - ends[1]) / 2e-6
        measured("gradient against differences", got / difference - 1, below=1e-6)
