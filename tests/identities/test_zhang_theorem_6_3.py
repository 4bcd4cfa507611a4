"""Zhang, Wu and Bartlett (2024), Theorem 6.3: the gradient flow of GD-beta."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp

from icltheory import regression as reg
from icltheory.regression._integrate import basis_along
from tests import oracles_ltb as oracles

DIM, TIMES = 3, 41
best = jax.jit(lambda *given: reg.optimum(reg.GDBeta, *given))


def drawn(seed, rank=DIM, rank_Psi=DIM):
    """A problem, a length, a start, and times on which all settles."""
    rng = np.random.default_rng([63, seed, rank, rank_Psi])
    population = oracles.random_population(rng, DIM, rank, rank_Psi)
    M = int(rng.integers(1, 12))
    start = reg.GDBeta(2 * rng.normal(size=DIM), rng.normal(size=(DIM, DIM)))
    tau = oracles.Whitened.of(population, M).tau
    values = np.linalg.eigvalsh(population.H)
    least = values[values > 1e-10][0]
    slowest = min(4 * least / (M + 2), 2 * tau * least**2 / M)
    times = np.append(0, np.geomspace(1e-3, 1, TIMES - 1) * 40 / slowest)
    return population, M, start, times


@functools.cache
def flowed(seed, rank=DIM, rank_Psi=DIM):
    population, M, start, times = drawn(seed, rank, rank_Psi)
    path = reg.flow(start, reg.LinearPopulation(*population), M, times)
    assert path.succeeded
    return population, M, start, times, path


def distances(model, population, M):
    """|P(beta_t - beta*)| and |P(Gamma_t - Gamma*)P|_F, in NumPy."""
    beta, Gamma = (np.asarray(part) for part in (model.beta, model.Gamma))
    P = oracles.projector(population.H)
    b = (beta - population.mean) @ P
    D = Gamma - oracles.best_preconditioner(population, M)
    return np.linalg.norm(b, axis=1), np.linalg.norm(P @ D @ P, axis=(1, 2))


def slope(population, M, beta, Gamma):
    """Slopes of beta and Gamma in the deviations, through roots of H."""
    white = oracles.Whitened.of(population, M)
    R, Omega, d = white.root, white.Omega, len(beta)
    u = R @ (beta - population.mean)
    D = Gamma - oracles.best_preconditioner(population, M)
    A = R @ Gamma @ R
    Q = np.eye(d) - A - A.T + (M + 1) / M * A.T @ A + np.trace(A.T @ A) / M * np.eye(d)
    moved = Omega + (M + 1) / M * np.outer(u, u) + u @ u / M * np.eye(d)
    forced = np.linalg.solve(Omega, white.tau * np.outer(u, u) - u @ u * white.Phi)
    in_Gamma = -2 * population.H @ D @ R @ moved @ R + 2 / M * R @ forced @ R
    return -2 * R @ Q @ u, in_Gamma


# --- the differential equation


@jax.jit
def descent(population, M, model):
    return jax.grad(reg.risk)(model, reg.LinearPopulation(*population), M)


@pytest.mark.statement("Zhang: Lemma G.4")
def test_flow_in_deviations_is_the_gradient(measured):
    worst = 0
    for seed in range(40):
        population, M, start, _ = drawn(seed, 1 + seed % DIM, 1 + seed // 3 % DIM)
        found = descent(population, M, start)
        expected = slope(population, M, np.asarray(start.beta), np.asarray(start.Gamma))
        for a, b in zip((found.beta, found.Gamma), expected, strict=True):
            worst = max(worst, np.abs(a + b).max() / (1 + np.abs(b).max()))
    measured("relative error", worst, below=1.3e-14)


@pytest.mark.statement("Zhang: Theorem 6.3")
@pytest.mark.slow
@pytest.mark.parametrize("rank", [DIM, DIM - 1])
def test_path_is_that_of_another_solver(rank, measured):
    population, M, start, times = drawn(5, rank)

    def speed(_, z):
        parts = slope(population, M, z[:DIM], z[DIM:].reshape(DIM, DIM))
        return np.append(parts[0], parts[1].ravel())

    first = np.append(start.beta, np.ravel(start.Gamma))
    solved = solve_ivp(
        speed, (0, times[-1]), first, "LSODA", times, rtol=1e-11, atol=1e-13
    )
    path = reg.flow(
        start, reg.LinearPopulation(*population), M, times, rtol=1e-11, atol=1e-13
    )
    found = np.hstack([path.model.beta, np.reshape(path.model.Gamma, (TIMES, -1))])
    measured("difference from LSODA", found - solved.y.T, below=2e-8)


@pytest.mark.statement("Zhang: after Theorem 6.3")
def test_risk_is_not_convex(measured):
    population, M, *_ = drawn(0)
    problem = reg.LinearPopulation(*population)

    @jax.jit
    @jax.vmap
    def hessian(z):
        def risk(z):
            model = reg.GDBeta(z[:DIM], z[DIM:].reshape(DIM, DIM))
            return reg.risk(model, problem, M)

        return jax.hessian(risk)(z)

    z = 3 * np.random.default_rng(0).normal(size=(200, DIM + DIM**2))
    least = np.linalg.eigvalsh(hessian(z)).min()
    measured("least eigenvalue of the Hessian", least)
    assert least < -1e-3


# --- limit and invariants


@pytest.mark.statement("Zhang: Theorem 6.3")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("rank", "rank_Psi"), [(DIM, DIM), (DIM - 1, DIM), (DIM, 0), (DIM, 1)]
)
def test_flow_converges_to_the_projected_optimum(rank, rank_Psi, measured):
    for seed in range(8) if rank_Psi == DIM else [1]:
        population, M, start, _, path = flowed(seed, rank, rank_Psi)
        P = oracles.projector(population.H)
        off = np.asarray(start.Gamma) - oracles.best_preconditioner(population, M)
        beta = start.beta - P @ (np.asarray(start.beta) - population.mean)
        Gamma = start.Gamma - P @ off @ P
        end = reg.flow_limit(start, reg.LinearPopulation(*population), M)
        np.testing.assert_allclose(end.beta, beta, atol=1e-13)
        np.testing.assert_allclose(end.Gamma, Gamma, atol=1e-12)
        last = np.append(path.model.beta[-1] - beta, path.model.Gamma[-1] - Gamma)
        measured("distance from the limit", last, below=3.7e-12)
        measured("excess at the end", path.excess[-1], below=1e-12)
        assert path.excess[-1] >= 0
        relative = path.risk[-1] / least(population, M) - 1
        measured("relative excess of the risk", relative, below=3e-15)


def least(population, M):
    return oracles.minimal_risks(population, M)[2]


@pytest.mark.statement("Zhang: Theorem 6.3")
def test_what_inputs_do_not_span_leaves_a_basis_along_the_direction():
    """Only among equal eigenvalues, and whatever the direction's length and sign."""
    direction, basis_of = -1e6 * np.array([1.0, 1.0, 2.0]), jax.jit(basis_along)
    for size in (1.0, 1e6, 1e-6):
        _, basis = basis_of(size * np.diag([4.0, 1.0, 1.0]), direction)
        basis, along = np.abs(np.asarray(basis)), np.array([0, 1, 2]) / 5**0.5
        np.testing.assert_allclose(basis[:, 2], [1, 0, 0], atol=1e-6)
        np.testing.assert_allclose(basis[:, 1], along, atol=1e-6)


@pytest.mark.slow
@pytest.mark.statement("Zhang: Theorem 6.3")
def test_what_inputs_do_not_span_is_frozen(measured):
    for seed in range(8):
        population, _, start, _, path = flowed(seed, DIM - 1)
        P = oracles.projector(population.H)
        kept = np.subtract(path.model.beta, start.beta) @ (np.eye(DIM) - P)
        change = np.asarray(path.model.Gamma) - np.asarray(start.Gamma)
        drift = max(np.abs(kept).max(), np.abs(change - P @ change @ P).max())
        measured("largest change", drift, below=8.4e-14)
        assert np.abs(P @ change[-1] @ P).max() > 1e-2


@pytest.mark.statement("Zhang: Theorem 6.3")
def test_excess_falls_along_the_path_and_is_the_risk_beyond_the_least(measured):
    for seed in range(8):
        population, M, _, _, path = flowed(seed)
        assert np.all(np.diff(path.excess) <= 0)
        difference = np.asarray(path.risk) - least(population, M)
        error = np.abs(difference - path.excess).max() / path.risk[0]
        measured("difference over the first risk", error, below=1e-14)


# --- rates


@pytest.mark.statement("Zhang: Theorem 6.3, rates", "Zhang: Lemma G.3")
@pytest.mark.parametrize("rank", [DIM, DIM - 1])
def test_flow_never_outruns_its_proved_rates(rank, measured):
    for seed in range(8):
        population, M, start, times, path = flowed(seed, rank)
        bounds = reg.flow_bounds(start, reg.LinearPopulation(*population), M, times)
        in_beta, in_Gamma = distances(path.model, population, M)
        # a bound below the rounding of beta* and Gamma* themselves says nothing
        for name, value, bound, floor in (
            ("start", in_beta, bounds.beta, 1e-12),
            ("start, the paper's argument", in_beta, bounds.beta_text, 1e-12),
            ("preconditioner", in_Gamma, bounds.Gamma, 1e-11),
            ("excess", np.asarray(path.excess), bounds.excess, 1e-22),
        ):
            seen = value > floor
            share = np.max(value[seen] / np.asarray(bound)[seen])
            measured(f"largest share of the bound: {name}", share)
            assert share <= 1 + 1e-6
        assert np.all(bounds.beta <= bounds.beta_text)


@pytest.mark.statement("Zhang: Theorem 6.3, rates")
def test_bounds_are_the_formulas_of_lemmas_g3_and_g6(measured):
    for seed, rank in ((0, DIM), (1, DIM - 1)):
        population, M, start, times = drawn(seed, rank)
        bounds = reg.flow_bounds(start, reg.LinearPopulation(*population), M, times)
        values = np.linalg.eigvalsh(population.H)
        low, top = values[values > 1e-10][0], values[-1]
        tau = oracles.Whitened.of(population, M).tau
        alpha, gamma = 2 * tau * low**2 / M, 8 * low / (M + 2)
        first = jax.tree.map(lambda a: a[None], start)
        (beta_0,), (Gamma_0,) = distances(first, population, M)
        C = 4 * top**2 * beta_0**2
        np.testing.assert_allclose(
            [bounds.alpha, bounds.gamma, bounds.forcing], [alpha, gamma, C], rtol=1e-12
        )
        np.testing.assert_allclose(
            bounds.beta, beta_0 * np.exp(-4 * low * times / (M + 2)), rtol=1e-11
        )
        forced = (np.exp(-gamma * times) - np.exp(-alpha * times)) / (alpha - gamma)
        expected = np.exp(-alpha * times) * Gamma_0 + C * forced
        error = np.abs(bounds.Gamma - expected).max() / expected.max()
        measured("relative error of the bound", error, below=1e-12)
        text = beta_0 * np.exp(-2 * low * times / (M + 1))
        np.testing.assert_allclose(bounds.beta_text, text, rtol=1e-11)
        white = oracles.Whitened.of(population, M)
        best = oracles.best_preconditioner(population, M)
        squared = np.trace(population.H @ best @ population.H @ best.T)
        a = np.sqrt(squared) + top * expected
        in_beta = top * ((1 + a) ** 2 + 2 * a**2 / M) * np.asarray(bounds.beta) ** 2
        omega = ((M + 1) * np.linalg.norm(white.Phi) + tau) / M
        excess = in_beta + top**2 * omega * expected**2
        np.testing.assert_allclose(bounds.excess, excess, rtol=1e-10)


@pytest.mark.statement("Zhang: Theorem 6.3, rates")
@pytest.mark.parametrize("offset", [0.0, 1e-12, 1e-7, 0.3])
def test_bound_where_the_two_rates_meet(offset, measured):
    M, h = 2, 0.8
    tau = 4 * M / (h * (M + 2)) * (1 + offset)  # alpha = gamma at offset 0
    one = np.eye(1)
    problem = reg.LinearPopulation(h * one, np.zeros(1), 0.5 * one, tau - 0.5 * h)
    start = reg.GDBeta(np.ones(1), 2 * one)
    times = np.array([0.0, 1e-3, 0.7, 20.0])
    bounds = reg.flow_bounds(start, problem, M, times)
    alpha, gamma = float(bounds.alpha), float(bounds.gamma)
    np.testing.assert_allclose(alpha / gamma, 1 + offset, rtol=1e-14)
    first = abs(2 - float(best(problem, M).model.Gamma[0, 0]))
    for t, bound in zip(times, np.asarray(bounds.Gamma), strict=True):
        rate = lambda s, t=t: np.exp(-alpha * (t - s) - gamma * s)  # noqa: E731
        forced, _ = quad(rate, 0, t, epsabs=0, epsrel=1e-13)
        expected = np.exp(-alpha * t) * first + float(bounds.forcing) * forced
        measured("relative error", bound / expected - 1, below=1e-12)


@pytest.mark.statement("Zhang: Lemma G.3")
@pytest.mark.slow
def test_rate_of_the_start_is_attained(measured):
    # one dimension, H Gamma = M / (M + 2): there Q(Gamma) is 2 H / (M + 2)
    M, h = 5, 1.7
    problem = reg.LinearPopulation(h * np.eye(1), np.zeros(1), np.eye(1), 0.3)
    start = reg.GDBeta(1e-6 * np.ones(1), M / (M + 2) / h * np.eye(1))
    times = np.array([0.0, 1e-6])
    path = reg.flow(start, problem, M, times, rtol=1e-13, atol=1e-30)
    beta = np.asarray(path.model.beta)
    rate = -np.log(beta[1, 0] / beta[0, 0]) / 1e-6
    bounds = reg.flow_bounds(start, problem, M, times)
    measured("rate over the bound", rate / (bounds.gamma / 2))
    np.testing.assert_allclose(rate, bounds.gamma / 2, rtol=1e-5)


# --- other models


@pytest.mark.statement("Zhang: after Theorem 6.3")
@pytest.mark.slow
def test_attention_at_a_zero_mean_stays_a_gradient_step_and_finds_the_best(measured):
    # c = p = u = 0 stays so, as in the flow of Zhang, Frei and Bartlett
    population, M, *_ = drawn(3)
    problem = reg.LinearPopulation(*population._replace(mean=np.zeros(DIM)))
    start = reg.GDBeta(np.zeros(DIM), 0.1 * np.eye(DIM)).effective()
    path = reg.flow(start, problem, M, jnp.array([0.0, 1.0, 150.0]))
    assert path.succeeded
    measured("excess at the end", path.excess[-1], below=1e-12)
    for name in ("p", "u", "c"):
        assert np.abs(getattr(path.model, name)).max() < 1e-14
    Gamma = path.model.v[-1] * path.model.U[-1].T
    best = oracles.best_preconditioner(population, M)
    np.testing.assert_allclose(Gamma, best, atol=1e-6)


@pytest.mark.statement("Zhang: after Theorem 6.3")
@pytest.mark.slow
def test_ltb_started_near_the_optimum_returns_to_it_and_keeps_its_balance(measured):
    problem, M = reg.LinearPopulation(np.eye(2), np.ones(2), np.eye(2), 0.25), 4
    found = reg.optimum(reg.GDBeta, problem, M)
    best, least_risk = found.model, found.risk
    rng = np.random.default_rng(0)
    block = jax.tree.map(lambda W: W + 0.02 * rng.normal(size=W.shape), best.to_ltb())
    path = reg.flow(block, problem, M, jnp.array([0.0, 1.0, 100.0]))
    assert path.succeeded
    measured("excess at the end", path.excess[-1])
    assert path.excess[-1] < 1e-12 < path.excess[0]
    np.testing.assert_allclose(path.risk[-1], least_risk, rtol=1e-12)
    # W_K W_K' - W_Q W_Q' and its like are conserved by every flow on such products
    for left, right in (("W_K", "W_Q"), ("W_P", "W_V"), ("W_1", "W_2")):
        a, b = (np.asarray(getattr(path.model, name)) for name in (left, right))
        kept = a @ a.transpose(0, 2, 1) - b @ b.transpose(0, 2, 1)
        measured(f"change of the balance of {left}", np.abs(kept - kept[:1]).max())
        np.testing.assert_allclose(kept - kept[:1], 0, atol=1e-6)
