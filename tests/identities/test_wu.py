"""Wu et al. (2024): the best single gradient step, and other prompt lengths."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.regression import LinearPopulation, pretraining
from tests.derivatives import slope_error
from tests.oracles import z_score
from tests.regression import oracles_ltb_rates as oracles

DIM = 3


@jax.jit
def computed(H, mean, Psi, noise_var, N, Gamma):
    """The best step, its risk, and the excess of another over it."""
    problem = LinearPopulation(H, mean, Psi, noise_var)
    optimum = reg.optimum(reg.LinearStep, problem, N)
    # Only the second moment of the tasks matters.
    centred = problem.with_(task_mean=0 * mean, task_cov=problem.second_moment)
    excess = reg.excess(reg.LinearStep(Gamma), centred, N).total
    return optimum.model.Gamma, optimum.risk, excess


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


@pytest.mark.statement("Wu: Theorem 3.1", "Ahn: Theorem 1, optimum")
@pytest.mark.statement("Zhang: Theorem 5.2 (one layer)")
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
        summed = missed_at(np.linalg.eigvals(H @ Psi).real, noise_var, N, M)
        np.testing.assert_allclose(excess, summed, rtol=1e-6, atol=1e-13)
        assert excess >= 0
        assert transferred(*problem, N, N)[1] == 0
        # a prior mean is the start of the step
        started = transferred(H, np.ones(DIM), Psi, noise_var, N, M)
        np.testing.assert_allclose(started[0], risk, rtol=1e-11)


def missed_at(phi, noise_var, N, M):
    """sum_i phi_i^2 omega_iM (1 / omega_iN - 1 / omega_iM)^2."""
    tau = phi.sum(axis=-1, keepdims=True) + np.reshape(noise_var, (-1, 1))
    omega_N, omega_M = (((n + 1) * phi + tau) / n for n in (N, M))
    return np.sum(phi**2 * omega_M * (1 / omega_N - 1 / omega_M) ** 2, axis=-1)


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
        problem = LinearPopulation(jnp.diag(lam), None, psi2 * jnp.eye(d), noise_var)
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
    phi, lengths = psi2[:, None] * lam, (N[:, None], M[:, None])
    tau = phi.sum(axis=1, keepdims=True) + noise_var[:, None]
    least = np.sum(phi * (phi + tau) / ((lengths[1] + 1) * phi + tau), axis=1)
    excess = least + missed_at(phi, noise_var, *lengths)
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
    def parts(noise_var, scale):
        H = scale * jnp.diag(jnp.array([2.0, 0, 1]))
        problem = LinearPopulation(H, noise_var=noise_var)
        step = reg.optimum(reg.GDBeta, problem, 5).model
        rate = reg.transfer.length_transfer_rate(problem, 5, 20)
        return reg.risk(step, problem, 20), rate, reg.excess(step, problem, 20).total

    def total(noise_var, scale):
        risk, rate, _ = parts(noise_var, scale)
        return risk + rate

    _, rate, excess = parts(0.0, 1.0)
    assert np.all(np.isfinite(jax.jit(jax.grad(total, (0, 1)))(0.0, 1.0)))
    assert rate == 0
    assert excess > 0
    measured("gradient against differences", slope_error(total, 0.7, 1.0), below=1e-6)


# --- one setting: the least risk, and d^2 / T for T tasks

LAM, N, NOISE = np.array([1, 0.7, 0.5, 0.3, 0.2]), 20, 0.25


def features(rng, T):
    """One query a task: x (X^T y / N)^T, flat, and its label, as NumPy draws them."""
    beta, X = rng.normal(size=(T, 5)), rng.normal(size=(T, N, 5)) * np.sqrt(LAM)
    y = np.einsum("tnd,td->tn", X, beta) + np.sqrt(NOISE) * rng.normal(size=(T, N))
    x = rng.normal(size=(T, 5)) * np.sqrt(LAM)
    h = np.einsum("tnd,tn->td", X, y) / N
    label = np.sum(x * beta, axis=1) + np.sqrt(NOISE) * rng.normal(size=T)
    return (x[:, :, None] * h[:, None]).reshape(T, -1), label


@pytest.mark.statement("Wu: number of tasks, simulated")
@pytest.mark.slow
def test_least_risk_of_one_step_is_that_of_the_simulation(measured):
    optimum = reg.optimum(
        reg.LinearStep, LinearPopulation(np.diag(LAM), noise_var=NOISE), N
    )
    measured("R*", optimum.risk)
    assert optimum.risk == pytest.approx(0.8815, abs=5e-5)
    inputs, label = features(np.random.default_rng(0), 100_000)
    squares = (inputs @ np.asarray(optimum.model.Gamma).ravel() - label) ** 2
    measured("z-score of 100,000 prompts", z_score(squares, optimum.risk), below=4)


@pytest.mark.statement("Wu: number of tasks, simulated")
def test_excess_of_least_squares_is_of_order_d_squared_over_tasks(measured):
    rng = np.random.default_rng(1)
    problem = LinearPopulation(np.diag(LAM), noise_var=NOISE)
    cost = jax.jit(lambda: pretraining.leading_excess(reg.LinearStep, problem, N))()
    least, exact = float(cost.optimum_risk), float(cost.constant)
    measured("tr(A^-1 B) / (d^2 R*)", exact / (25 * least))
    excess = jax.jit(
        jax.vmap(lambda Gamma: reg.excess(reg.LinearStep(Gamma), problem, N).total)
    )
    for T in (200, 400, 1600):
        fits = []
        for _ in range(20):
            inputs, label = features(rng, T)
            gram = inputs.T @ inputs
            fits.append(np.linalg.solve(gram, inputs.T @ label).reshape(5, 5))
        ratio = np.asarray(excess(jnp.asarray(np.stack(fits)))) * T / (25 * least)
        measured("excess T / (d^2 R*)", ratio.mean())
        error = ratio.std(ddof=1) / np.sqrt(len(ratio))
        measured("its standard error", error)
        measured("z of it", (ratio.mean() - exact / (25 * least)) / error, below=3)


# --- the bound on the number of tasks, from memory, against one simulation

EXAMPLES, RUNS = 16, 100
POWERS = np.arange(1.0, 7) ** -1.5


@jax.jit
def excesses(problem, steps):
    """Excess after a step of SGD on each of T fresh prompts, for every run."""

    def update(Gamma, inputs):
        step, key = inputs
        prompt = problem.sample(key, EXAMPLES, RUNS)
        h = jnp.einsum("bnd,bn->bd", prompt.X, prompt.y) / EXAMPLES
        miss = jnp.einsum("bi,bij,bj->b", prompt.x_query, Gamma, h) - prompt.y_query
        change = prompt.x_query[:, :, None] * h[:, None, :]
        return Gamma - step * miss[:, None, None] * change, None

    keys = jax.random.split(jax.random.key(0), len(steps))
    start = jnp.zeros((RUNS, 6, 6))
    Gamma = jax.lax.scan(update, start, (steps, keys))[0]
    return jax.vmap(lambda G: reg.excess(reg.LinearStep(G), problem, EXAMPLES).total)(
        Gamma
    )


@pytest.mark.statement("Wu: Theorem 4.1 (from memory)")
def test_steps_are_halved_log_t_times():
    for T in (2, 5, 256):
        expected = [0.3 * 0.5 ** int(t * np.log2(T) / T) for t in range(1, T + 1)]
        np.testing.assert_allclose(
            reg.transfer.halving_steps(T, 0.3), expected, rtol=1e-14
        )


@pytest.mark.statement("Wu: Theorem 4.1 (from memory)")
def test_terms_of_the_task_bound_are_as_written(measured):
    rng = np.random.default_rng(0)
    V = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    H = V @ np.diag(POWERS) @ V.T
    psi2, noise_var, N, T, step = 1.3, 0.4, 7, 50, 0.05
    problem = LinearPopulation(H, np.zeros(6), psi2 * np.eye(6), noise_var)
    start = 0.3 * H @ H
    got = reg.transfer.task_complexity_bound(problem, N, T, step, start)
    inverse = (np.trace(H) + noise_var / psi2) / N * np.eye(6) + (N + 1) / N * H
    feature = psi2 * H @ inverse
    gap = start - np.linalg.inv(inverse)
    for rate in np.asarray(reg.transfer.halving_steps(T, step)):
        gap = (np.eye(6) - rate * H @ feature) @ gap
    bias = np.trace(H @ feature @ gap @ gap)
    measured("relative error of the bias", got.bias / bias - 1, below=1e-11)
    tasks = T / np.log(T)
    dimension = sum(
        min(1.0, (tasks * step * a * b) ** 2)
        for a in np.linalg.eigvalsh(H)
        for b in np.linalg.eigvalsh(feature)
    )
    np.testing.assert_allclose(got.effective_dimension, dimension, rtol=1e-11)
    variance = (psi2 * np.trace(H) + noise_var) * dimension / tasks
    np.testing.assert_allclose(got.variance, variance, rtol=1e-11)
    np.testing.assert_allclose(got.total, bias + variance, rtol=1e-11)
    largest = 1 / (np.trace(H) * np.trace(feature))
    np.testing.assert_allclose(got.largest_step, largest, rtol=1e-12)
    assert got.commutes
    wrong = rng.normal(size=(6, 6))
    assert not reg.transfer.task_complexity_bound(problem, N, T, step, wrong).commutes


@pytest.mark.statement("Wu: Theorem 4.1 (from memory)")
@pytest.mark.slow
def test_simulated_excess_agrees_with_the_unverified_task_bound(measured):
    # one instance is no verification: the statement itself is from memory
    T = 512
    problem = LinearPopulation(np.diag(POWERS), noise_var=1.0)
    step = (
        float(
            reg.transfer.task_complexity_bound(problem, EXAMPLES, T, 0.0).largest_step
        )
        / 3
    )
    excess = np.asarray(excesses(problem, reg.transfer.halving_steps(T, step)))
    total = float(reg.transfer.task_complexity_bound(problem, EXAMPLES, T, step).total)
    ratio = excess.mean() / total
    measured("excess over bias and variance", ratio)
    measured("its standard error", excess.std() / np.sqrt(RUNS) / total)
    assert 0.1 < ratio < 3
