"""The best LSA: its risk by the exact expectation, and closed forms of its gap."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares, minimize

from icltheory import regression as reg
from icltheory.regression import LinearPopulation
from tests import oracles
from tests import oracles_ltb as ltb
from tests.derivatives import slope_error


@jax.jit
@jax.vmap
def solve(H, mean, Psi, noise_var, M, seed):
    """The best model, its risk, and the gap as a sum of squares."""
    problem = LinearPopulation(H, mean, Psi, noise_var)
    found = reg.optimum(reg.LSA, problem, M, key=jax.random.key(seed))
    return found.model, found.risk, reg.excess(found.model, problem, M).total


def solve_all(cases):
    """Models, risks and gaps of (population, M), 8 at a time."""
    return ltb.in_chunks(solve, [(*p, M, k) for k, (p, M) in enumerate(cases)], 8)


@jax.jit
@jax.vmap
def closed_forms(H, mean, Psi, noise_var, M):
    problem = LinearPopulation(H, mean, Psi, noise_var)
    bounds = reg.gap(problem, M)
    small = reg.gaps.small_mean_gap(problem, M)
    second = Psi + mean[:, None] * mean[None, :]
    found = reg.optimum(reg.GDBeta, LinearPopulation(H, 0 * mean, second, noise_var), M)
    scalar = reg.gaps.scalar_gap(problem, M) if problem.dim == 1 else (small, small)
    return {
        "instance": bounds.lower_instance,
        "small mean": small,
        "scalar": scalar,
        "zero start": bounds.zero_start,
        "GD-0": (reg.risk(found.model, problem, M), found.risk),
        "R_min": reg.optimum(reg.LTB, problem, M).risk,
    }


def evaluate(cases):
    """``closed_forms`` of (population, M), 8 at a time."""
    return ltb.in_chunks(closed_forms, [(*p, M) for p, M in cases], 8)


def scaled_mean(population, size):
    """The same with |beta*|_H of this size."""
    length = np.sqrt(population.mean @ population.H @ population.mean)
    return population._replace(mean=population.mean * size / length)


def search(population, M, rng, starts):
    """The smallest gap that Levenberg-Marquardt finds, by the oracle's residuals."""
    white = ltb.Whitened.of(population, M)
    size, d = np.linalg.norm(white.m), len(white.m)
    guess = np.linalg.inv(white.Omega) @ white.Phi
    ends = []
    for _ in range(starts):
        q = rng.normal(size=d) * size * 10 ** rng.uniform(-1, 1)
        A = guess + 0.3 * rng.normal(size=(d, d))
        g = rng.normal(size=d) * size / white.tau * 10 ** rng.uniform(-1, 0)
        z = np.concatenate([q, g, A.ravel()])
        given = {"method": "lm", "args": (white, M), "xtol": 1e-12, "ftol": 1e-14}
        ends.append(least_squares(ltb.lsa_residuals, z, **given))
    return 2 * min(end.cost for end in ends)


# --- the optimum is what it says


@pytest.mark.statement("Zhang: Theorem 4.1, best LSA")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "M"),
    [(2, 1), (1, 2), (2, 3)],
)
def test_the_best_lsa_has_its_risk_by_the_exact_expectation(d, M, measured):
    rng = np.random.default_rng([61, d, M])
    ranks = (d, max(1, d - 1))
    cases = [(ltb.random_population(rng, d, rank), M) for rank in ranks]
    model, risk, _ = solve_all(cases)
    for k, (population, _) in enumerate(cases):
        weights = [np.asarray(W[k]) for W in jax.tree.leaves(model)]
        exact = oracles.exact_risk(
            functools.partial(oracles.block_predictions, weights), *population, M
        )
        measured("relative error", risk[k] / exact - 1, below=2e-14)


@pytest.mark.statement("Zhang: Theorem 4.1, best LSA")
@pytest.mark.slow
def test_the_best_lsa_of_the_worked_example_to_all_printed_digits(measured):
    H, Psi = np.array([[2, 0.5], [0.5, 1]]), np.array([[1, 0.2], [0.2, 0.5]])
    _, risk, gap = solve_all([(ltb.Population(H, np.array([1.0, -2.0]), Psi, 0.25), 3)])
    for name, value, text in (
        ("risk", risk[0], "3.2021498444"),
        ("gap", gap[0], "1.6807881005"),
    ):
        measured(f"{name} in units of the last digit", (value - float(text)) * 1e10)
        assert abs(value - float(text)) <= 0.5001e-10


@pytest.mark.statement("Zhang: Theorem 4.1, best LSA")
@pytest.mark.slow
def test_no_other_search_finds_a_better_lsa(measured):
    rng, d = np.random.default_rng([62, 3]), 3
    cases = []
    for _ in range(8):
        population = ltb.random_population(rng, d, noise_var=10 ** rng.uniform(-2, 1))
        size = 10 ** rng.uniform(-1, 1)
        cases.append((scaled_mean(population, size), int(rng.choice([1, 2, 5, 20]))))
    _, _, gap = solve_all(cases)
    found = np.array([search(*case, rng, 6) for case in cases])
    measured("gap above that of another search", np.max(gap / found - 1))
    measured("gap below it", np.min(gap / found - 1))
    assert np.all(gap < found * (1 + 1e-8))
    assert np.median(np.abs(gap / found - 1)) < 1e-7  # most often both find the same


@pytest.mark.statement("Zhang: Theorem 4.1, best LSA")
@pytest.mark.slow
def test_inputs_that_span_a_subspace_change_nothing(measured):
    # H of rank 2 in d = 3 is the problem of dimension 2; no weights can use the rest,
    # and the prior of the third direction is never seen.
    rng = np.random.default_rng(63)
    small, large = [], []
    for _ in range(16):
        low = ltb.random_population(rng, 2, noise_var=10 ** rng.uniform(-2, 0))
        low = scaled_mean(low, 10 ** rng.uniform(0.3, 1.3))
        Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        Q, unseen = Q[:, :2], Q[:, 2]
        M = int(rng.choice([5, 20]))
        small.append((low, M))
        mean, Psi = Q @ low.mean + 5 * unseen, Q @ low.Psi @ Q.T
        Psi += 3 * np.outer(unseen, unseen)
        large.append((ltb.Population(Q @ low.H @ Q.T, mean, Psi, low[3]), M))
    (_, low_risk, _), (model, risk, _) = (solve_all(cases) for cases in (small, large))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(model))
    measured("relative difference", risk / low_risk - 1, below=1e-12)


@pytest.mark.statement("Zhang: Theorem 4.1, closed forms")
def test_without_variance_of_tasks_the_gap_is_that_of_a_large_mean():
    rng = np.random.default_rng(72)
    H, mean, _, noise_var = ltb.random_population(rng, 2, noise_var=0.3)
    problem = LinearPopulation(H, mean, np.zeros((2, 2)), noise_var)
    for M in (1, 4):
        gap = float(reg.gaps.small_mean_gap(problem, M))
        assert gap == pytest.approx(2 / (M + 2) * mean @ H @ mean, rel=1e-12)


@pytest.mark.slow
@pytest.mark.statement("Zhang: Theorem 4.1, best LSA")
def test_the_gap_scales_with_the_square_of_the_labels(measured):
    # (Phi, sigma, m) -> (s^2 Phi, s sigma, s m)
    rng = np.random.default_rng(64)
    p = ltb.random_population(rng, 2)
    cases = [
        (ltb.Population(p.H, s * p.mean, s**2 * p.Psi, s**2 * p.noise_var), 4)
        for s in (1.0, 1e-3, 0.1, 30.0)
    ]
    _, _, gap = solve_all(cases)
    scaled = gap / np.array([1.0, 1e-6, 1e-2, 900.0])
    measured("relative spread", np.ptp(scaled) / scaled[0])
    np.testing.assert_allclose(scaled, scaled[0], rtol=1e-10)


@pytest.mark.statement("Zhang: Theorem 4.1, best LSA")
@pytest.mark.slow
def test_the_derivative_of_the_smallest_risk_holds_the_model_fixed(measured):
    H, mean, Psi, _ = ltb.random_population(np.random.default_rng(65), 2)

    def risk(noise_var):
        problem = LinearPopulation(H, mean, Psi, noise_var)
        given = {"key": jax.random.key(0), "num_starts": 8}
        return reg.optimum(reg.LSA, problem, 5, **given).risk

    error = slope_error(risk, 0.5, step=1e-4, towards=(1.0,))
    measured("slope against differences", error, below=1e-6)


@pytest.mark.slow
@pytest.mark.statement("Zhang: Theorem 4.1, best LSA")
def test_predictions_of_the_best_lsa_need_no_mlp(measured):
    # its risk is that of its LSA form and of the LTB with read-out e
    rng = np.random.default_rng(66)
    population = ltb.random_population(rng, 2)
    model, *_ = solve_all([(population, 3)])
    lsa = jax.tree.map(lambda a: jnp.asarray(a[0]), model)
    X, y, x = ltb.random_prompts(rng, population, 3, 10)

    @jax.jit
    def predictions(lsa):
        block = lsa.effective().to_ltb()
        return [jax.vmap(m.predict)(X, y, x) for m in (lsa, block)]

    by_attention, by_block = predictions(lsa)
    measured("difference", np.abs(by_attention - by_block).max())
    np.testing.assert_allclose(by_attention, by_block, rtol=1e-11)
    # Of all models with these predictions it is the one whose two sides have one norm.
    parts = jax.tree.map(np.asarray, jax.jit(lambda lsa: lsa.effective())(lsa))
    values = np.sum(parts.p**2) + parts.v**2
    assert values == pytest.approx(np.sum(parts.U**2) + np.sum(parts.u**2), rel=1e-12)


# --- closed forms


@pytest.mark.statement("Zhang: Theorem 4.1")
@pytest.mark.slow
def test_the_best_lsa_feels_the_prior_mean_and_the_best_ltb_does_not(measured):
    population = ltb.random_population(np.random.default_rng(72), 2)
    cases = [(population._replace(mean=s * population.mean), 5) for s in (0, 1, 3)]
    _, risk, _ = solve_all(cases)
    least = evaluate(cases)["R_min"]
    assert np.ptp(least) == 0
    measured("risk of the best LSA at 3 beta* over the best LTB", risk[2] / least[0])
    np.testing.assert_allclose(risk[0], least[0], rtol=1e-12)
    assert risk[0] < risk[1] < risk[2]


@pytest.mark.statement("Zhang: Theorem 4.1, closed forms")
def test_without_a_prior_mean_there_is_no_gap(measured):
    rng = np.random.default_rng(67)
    cases = []
    for _ in range(16):
        population = ltb.random_population(rng, 2, rank_Psi=rng.integers(1, 3))
        cases.append((population._replace(mean=np.zeros(2)), int(rng.integers(1, 20))))
    _, risk, gap = solve_all(cases)
    least = np.array([ltb.minimal_risks(*case)[2] for case in cases])
    measured("relative error of the risk", risk / least - 1, below=1e-12)
    measured("largest gap", np.abs(gap).max())


@pytest.mark.statement("Zhang: Theorem 4.1, closed forms")
@pytest.mark.slow
def test_the_best_gd_0_is_the_formula_with_the_second_moment(measured):
    rng = np.random.default_rng(68)
    cases = [(ltb.random_population(rng, 3, rng.integers(2, 4)), 6) for _ in range(8)]
    found = evaluate(cases)
    risk, least = found["GD-0"]  # risk of a GD-0 on the problem, and its formula
    measured("relative error", risk / least - 1, below=1e-13)
    np.testing.assert_allclose(found["zero start"], least - found["R_min"], rtol=1e-11)


@pytest.mark.statement("Zhang: Theorem 4.1, closed forms")
@pytest.mark.slow
def test_for_one_dimension_the_gap_is_the_closed_form_up_to_its_limit(measured):
    rng = np.random.default_rng(69)
    cases = []
    for _ in range(24):
        phi, noise = 10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-2, 2)
        h, M = 10 ** rng.uniform(-1, 1), int(rng.integers(1, 40))
        one = np.ones((1, 1))
        cases.append((ltb.Population(h * one, np.ones(1), phi / h * one, noise), M))
    _, limits = evaluate(cases)["scalar"]
    inside, beyond = (
        [
            (scaled_mean(p, s * limit), M)
            for (p, M), limit, s in zip(cases, limits, shares, strict=True)
        ]
        for shares in (rng.uniform(0.05, 0.95, size=24), np.full(24, 3.0))
    )
    formula = evaluate(inside)
    expected, again = formula["scalar"]
    np.testing.assert_allclose(again, limits, rtol=1e-13)
    ratio = formula["instance"] / expected
    measured("against the instance bound", ratio - 1, below=1e-13)
    _, _, found = solve_all(inside)
    measured("relative error", found / expected - 1, below=1e-13)
    _, _, found = solve_all(beyond)
    ratio = found / evaluate(beyond)["scalar"][0]
    measured("three times beyond the limit, smallest ratio less 1", ratio.min() - 1)
    assert np.all(ratio > 1 + 1e-8)


@pytest.mark.statement("Zhang: Theorem 4.1, best LSA")
def test_the_limit_in_one_dimension_is_its_formula(measured):
    for phi, noise_var, M in ((1.0, 1.0, 10), (0.3, 2.0, 1), (5.0, 0.1, 40)):
        start = ltb.Population(np.eye(1), np.ones(1), phi * np.eye(1), noise_var)
        tau = phi + noise_var
        kappa = 2 * tau**2 / M + 2 * (1 + 2 / M) * phi**2
        D = np.array([[2 / M, 2 * phi / M], [2 * phi / M, kappa]])
        z = np.linalg.solve(D, [1, tau])
        z /= 1 + z @ [1, tau]
        expected = phi * M / (2 * ((M + 1) * phi + tau)) / np.sqrt(z[0] * z[1])
        _, limit = reg.gaps.scalar_gap(LinearPopulation(*start), M)
        measured("relative error of the limit", limit / expected - 1, below=1e-12)


@pytest.mark.statement("Zhang: Theorem 4.1, closed forms")
@pytest.mark.slow
def test_a_small_prior_mean_costs_the_quadratic_form(measured):
    rng = np.random.default_rng(70)
    cases = []
    for M in (2, 10, 4, 1):
        population = ltb.random_population(rng, 2, noise_var=0.49)
        scale = ltb.Whitened.of(population, M).tau
        cases.append((scaled_mean(population, 1e-3 * np.sqrt(scale)), M))
    _, _, gap = solve_all(cases)
    error = gap / evaluate(cases)["small mean"] - 1
    measured("relative error at |m| = 1e-3", error, below=1e-5)


@pytest.mark.statement("Zhang: Theorem 4.1, closed forms")
def test_for_a_large_prior_mean_the_gap_is_2_over_m_plus_2_of_its_square(measured):
    rng = np.random.default_rng(71)
    cases = []
    for M in (2, 10, 4, 1):
        population = ltb.random_population(rng, 2, noise_var=0.49)
        scale = ltb.Whitened.of(population, M).tau
        cases.append((scaled_mean(population, 1e3 * np.sqrt(scale)), M))
    _, _, gap = solve_all(cases)
    ratio = [
        g * (M + 2) / 2 / (p.mean @ p.H @ p.mean)
        for g, (p, M) in zip(gap, cases, strict=True)
    ]
    measured("relative error at |m| = 1e3", np.abs(np.array(ratio) - 1).max())
    np.testing.assert_allclose(ratio, 1, atol=1e-5)


@pytest.mark.statement("Zhang: Theorem 4.1, closed forms")
def test_an_isotropic_problem_has_three_unknowns(measured):
    # A = a1 along m and a2 across, q and g along m; a2 is eliminated
    cases, expected = [], []
    for M, mu in ((4, 0.1), (4, 1.0), (4, 5.0), (9, 0.5)):
        phi, noise, d = 0.2, 0.16, 2
        cases.append(
            (ltb.Population(np.eye(d), mu * np.eye(d)[0], phi * np.eye(d), noise), M)
        )
        expected.append(_isotropic_gap(phi, noise, d, mu, M))
    _, _, gap = solve_all(cases)
    measured("relative error", gap / expected - 1, below=1e-10)


def _isotropic_gap(phi, noise, d, mu, M):
    tau, T = d * phi + noise, d * phi**2
    omega = ((M + 1) * phi + tau) / M
    kappa = 2 * tau**2 / M + 2 * (1 + 2 / M) * T

    def excess(z):
        a1, q, g = z
        a2 = phi / (omega + q**2 / M)
        across = omega * (a2 - phi / omega) ** 2 + (a2 * q) ** 2 / M
        along = omega * (a1 + q * g - phi / omega) ** 2 + (a1 * q + tau * g - mu) ** 2
        cross = (2 * (a1 * q) ** 2 + 4 * a1 * phi * q * g) / M
        return along + (d - 1) * across + cross + kappa * g**2

    a0, g0 = phi / omega, mu * tau / (tau**2 + kappa)
    starts = [(a0, mu, 0.0), (a0, 1e-3, g0), (1.0, mu, 0.0), (0.1, 5 * mu, 0.1 * g0)]
    ends = [minimize(excess, z, method="BFGS", options={"gtol": 1e-11}) for z in starts]
    return min(end.fun for end in ends)


@pytest.mark.statement("Zhang: Theorem 4.1, closed forms")
def test_a_small_mean_costs_what_a_linear_solve_gives():
    H, Psi = np.array([1.5, 0.4]), np.array([0.5, 2.0])
    mean, noise, M = np.array([0.3, -0.2]), 0.25, 4
    phi, m = H * Psi, np.sqrt(H) * mean
    tau = phi.sum() + noise
    a = phi * M / ((M + 1) * phi + tau)
    kappa = 2 * tau**2 / M + 2 * (1 + 2 / M) * (phi**2).sum()
    expected = 0.0
    for i in range(2):
        side = 2 * a[i] * phi[i] / M
        D = np.array([[(a[i] ** 2 + (a**2).sum()) / M, side], [side, kappa]])
        h = np.array([a[i], tau])
        expected += m[i] ** 2 / (1 + h @ np.linalg.solve(D, h))
    problem = LinearPopulation(np.diag(H), mean, np.diag(Psi), noise)
    np.testing.assert_allclose(
        reg.gaps.small_mean_gap(problem, M), expected, rtol=1e-12
    )
