"""Theorem 5.3: the best linear transformer blocks are the best GD-beta."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory import regression as reg
from icltheory.regression import LinearPopulation
from tests import oracles
from tests import oracles_ltb as ltb

CONDITIONS = ("v", "c", "p", "u", "U")


@jax.jit
@jax.vmap
def risks(parts, H, mean, Psi, noise_var, M):
    """Risks of any number of parameter sets on one problem."""
    problem = LinearPopulation(H, mean, Psi, noise_var)
    return jax.vmap(lambda *a: reg.risk(reg.EffectiveParameters(*a), problem, M))(
        *parts
    )


def minimiser(rng, population, M):
    """A random member (c, p, v, U, u) of the set of the theorem."""
    P, mean = ltb.projector(population.H), population.mean
    d, N = len(mean), np.eye(len(mean)) - P
    v = rng.choice([-1, 1]) * 10 ** rng.uniform(-1, 1)
    Z = rng.normal(size=(d, d))
    Gamma = ltb.best_preconditioner(population, M) + Z - P @ Z @ P
    c, p, u = (N @ rng.normal(size=d) for _ in range(3))
    return mean + c, p - v * mean, v, Gamma.T / v, u


def violations(rng, parts, population):
    """The same with each condition broken in turn, by steps of size 0.1 in im(H)."""
    c, p, v, U, u = parts
    P, d = ltb.projector(population.H), len(c)
    steps = 0.1 * rng.normal(size=(3, d)) @ P
    change = 0.1 * P @ rng.normal(size=(d, d)) @ P
    return {
        "v": (c, p, 0.0, U, u),
        "c": (c + steps[0], p, v, U, u),
        "p": (c, p + v * steps[1], v, U, u),
        "u": (c, p, v, U, u + steps[2] / abs(v)),
        "U": (c, p, v, U + change / abs(v), u),
    }


def drawn(rng, d, count):
    """Populations with rank(Phi) >= 2, lengths, members, and broken members."""
    cases = []
    for _ in range(count):
        population = ltb.random_population(rng, d, rng.integers(2, d + 1))
        M = int(rng.integers(1, 20))
        parts = minimiser(rng, population, M)
        broken = violations(rng, parts, population)
        cases.append((population, M, parts, broken))
    return cases


def _sets(cases):
    """Arguments over cases, the parameters over [member, broken v, c, p, u, U]."""
    sets = [
        [np.stack(a) for a in zip(parts, *broken.values(), strict=True)]
        for _, _, parts, broken in cases
    ]
    parts = [np.stack(a) for a in zip(*sets, strict=True)]
    return parts, *ltb.stacked([(*p, M) for p, M, *_ in cases])


def all_risks(cases):
    """(case, [member, broken v, c, p, u, U])."""
    return np.asarray(risks(*_sets(cases)))


@pytest.mark.statement("Zhang: Theorem 5.3")
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), d=st.sampled_from([2, 4]))
def test_the_set_attains_the_smallest_risk_of_gd_beta(seed, d, measured):
    cases = drawn(np.random.default_rng(seed), d, 8)
    least = np.array([ltb.minimal_risks(p, M)[2] for p, M, *_ in cases])
    error = _worst(np.abs(all_risks(cases)[:, 0] - least), cases, least)
    measured("error of the risk in terms of its sensitivity", error, below=1e-14)


def _worst(error, cases, least):
    """H u is 0 to rounding only, and v^2 u'H u meets the squared label variance."""
    scale = [
        r + (v * np.linalg.norm(u) * np.trace(p.H @ p.Psi) + p.noise_var) ** 2
        for r, (p, _, (_, _, v, _, u), _) in zip(least, cases, strict=True)
    ]
    return np.max(error / scale)


@pytest.mark.statement("Zhang: Theorem 5.3")
@pytest.mark.parametrize("d", [2, 4])
def test_violating_any_one_condition_raises_the_risk(d, measured):
    cases = drawn(np.random.default_rng([53, d]), d, 8)
    found = all_risks(cases)
    increase = found[:, 1:] / found[:, :1] - 1
    for k, name in enumerate(CONDITIONS):
        measured(f"smallest relative increase, {name}", increase[:, k].min())
    assert np.all(increase > 1e-6)


@jax.jit
@jax.vmap
def distances(parts, H, mean, Psi, noise_var, M):
    """The predicate for any number of parameter sets on one problem."""

    def check(*parts):
        model = reg.EffectiveParameters(*parts)
        found = reg.landscape.optimality_conditions(model, problem, M)
        again = reg.landscape.optimality_conditions(model.rescaled(-3.0), problem, M)
        lengths = [
            jnp.stack([c.read_out, c.start, c.labels, c.scores]) for c in (found, again)
        ]
        return found.hold(), lengths[0], lengths[1], found.rank

    problem = LinearPopulation(H, mean, Psi, noise_var)
    return jax.vmap(check)(*parts)


@pytest.mark.statement("Zhang: Theorem 5.3")
@pytest.mark.parametrize("d", [2, 4])
def test_the_predicate_knows_members_and_names_the_broken_condition(d, measured):
    cases = drawn(np.random.default_rng([59, d]), d, 8)
    hold, lengths, rescaled, rank = map(np.asarray, distances(*_sets(cases)))
    assert np.all(hold[:, 0])
    assert not np.any(hold[:, 1:])
    measured("largest distance of a member", lengths[:, 0].max(), below=1e-6)
    # the root of rounding
    # broken: c, p, u, U in the order of the distances; v = 0 leaves no start at all
    for k, (broken, distance) in enumerate(((2, 0), (3, 1), (4, 2), (5, 3))):
        measured(
            f"smallest distance, broken {CONDITIONS[k + 1]}", lengths[:, k + 2, k].min()
        )
        assert np.all(lengths[:, broken, distance] > 1e-4)
        others = np.delete(lengths[:, broken], distance, axis=1)
        assert np.all(others < 1e-6)
    assert np.all(np.isinf(lengths[:, 1, 1]))
    np.testing.assert_allclose(rescaled, lengths, rtol=1e-6, atol=1e-6)
    expected = [np.linalg.matrix_rank(p.H, tol=1e-9) for p, *_ in cases]
    np.testing.assert_array_equal(rank[:, 0], expected)


@pytest.mark.statement("Zhang: Theorem 5.3")
def test_distances_are_their_formulas_in_label_units():
    cases = drawn(np.random.default_rng([60, 2]), 2, 8)
    lengths = np.asarray(distances(*_sets(cases))[1])
    for k, (population, M, _, broken) in enumerate(cases):
        H, mean, Psi, noise_var = population
        tau, best = (
            np.trace(H @ Psi) + noise_var,
            ltb.best_preconditioner(population, M),
        )
        for j, (c, p, v, U, u) in enumerate(list(broken.values())[1:]):
            D = v * U.T - best
            squares = [(a @ H @ a) / tau for a in (c - mean, p / v + mean, tau * v * u)]
            expected = np.sqrt([*squares, np.trace(D.T @ H @ D @ H)])
            np.testing.assert_allclose(lengths[k, j + 2], expected, 1e-8, 1e-6)
    # The value only has to differ from 0; every distance has to be small.
    for value, distance in ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0)):
        parts = map(jnp.asarray, (value, 0.0, 0.0, distance, 0.0, 2))
        found = reg.landscape.OptimalityConditions(*parts)
        assert bool(found.hold()) == (value == 1 and distance == 0)


@pytest.mark.statement("Zhang: Theorem 5.3")
@pytest.mark.parametrize("d", [2, 4])
def test_every_best_block_is_the_best_gd_beta_on_prompts(d, measured):
    rng = np.random.default_rng([54, d])
    for population, M, (c, p, v, U, u), _ in drawn(rng, d, 8):
        # any matrices with these products, with anything in the other rows
        free = rng.normal(size=(d, d + 1))
        W_1, W_2 = np.vstack([free, np.append(c, 1.0)]), np.eye(d + 1)
        W_P, W_V = np.eye(d + 1)[-1:], np.append(p, v)[None]
        W_Q = np.column_stack([np.vstack([U, u]), rng.normal(size=d + 1)])
        weights = np.eye(d + 1), W_Q, W_P, W_V, W_1, W_2
        prompts = ltb.random_prompts(rng, population, M, 40)
        block = oracles.block_predictions(weights, *prompts)
        Gamma = ltb.best_preconditioner(population, M)
        step = oracles.gradient_step_predictions(population.mean, Gamma, *prompts)
        error = np.max(np.abs(block - step) / (1 + np.abs(step)))
        measured("relative difference", error, below=1e-12)
        back = map(np.asarray, jax.tree.leaves(reg.GDBeta.of(reg.LTB(*weights))))
        again = oracles.gradient_step_predictions(*back, *prompts)
        np.testing.assert_allclose(again, step, rtol=1e-10, atol=1e-10)


# --- searches


@pytest.mark.statement("Zhang: Theorem 5.3")
@pytest.mark.slow
def test_no_block_found_by_search_is_below_it_and_the_best_satisfies_it(measured):
    rng = np.random.default_rng(55)

    @jax.jit
    def value_and_gradient(z, problem, M):
        return jax.value_and_grad(lambda z: reg.risk(_parts(z, 2), problem, M))(z)

    shares = []
    for _ in range(4):
        population, M = ltb.random_population(rng, 2), int(rng.integers(1, 10))
        problem = jax.tree.map(jnp.asarray, LinearPopulation(*population))
        _, best, share = ltb.lowest(
            lambda z, problem=problem, M=M: value_and_gradient(z, problem, M),
            rng.normal(size=(10, 11)),
        )
        shares.append(share)
        least = ltb.minimal_risks(population, M)[2]
        measured("relative error of the risk", best.fun / least - 1, below=1e-13)
        c, p, v, U, u = (np.asarray(a) for a in jax.tree.leaves(_parts(best.x, 2)))
        Gamma = ltb.best_preconditioner(population, M)
        for residual in (c - population.mean, p + v * population.mean, v * u):
            measured("conditions", residual, below=1e-6)
        np.testing.assert_allclose(v * U.T, Gamma, atol=1e-6)
        assert abs(v) > 1e-3
    measured("share of starts that reach the smallest risk", np.mean(shares), below=1)
    # see the spurious minima below


def _parts(z, d):
    c, p, u, v, U = jnp.split(z, (d, 2 * d, 3 * d, 3 * d + 1))
    return reg.EffectiveParameters(c, p, v[0], U.reshape(d, d), u)


# --- where Phi has rank 1, and where searches stop


@pytest.mark.statement("Zhang: Theorem 5.3")
def test_with_rank_1_there_is_a_second_family_of_minimisers(measured):
    # v = 0, c = beta*, Gamma* = u p', U = -beta* u': no value is read from labels
    rng = np.random.default_rng(57)
    cases = []
    for _ in range(8):
        population = ltb.random_population(rng, 4, 4, 1)
        M, mean = int(rng.integers(1, 10)), population.mean
        Gamma = ltb.best_preconditioner(population, M)
        left, size, right = np.linalg.svd(Gamma)
        u, p = left[:, 0] * size[0], right[0]
        parts = mean, p, 0.0, -np.outer(mean, u), u
        cases.append((population, M, parts, dict.fromkeys(CONDITIONS, parts)))
        prompts = ltb.random_prompts(rng, population, M, 20)
        made = reg.EffectiveParameters(*parts).to_ltb()
        weights = [np.asarray(W) for W in jax.tree.leaves(made)]
        block = oracles.block_predictions(weights, *prompts)
        step = oracles.gradient_step_predictions(mean, Gamma, *prompts)
        measured("difference of the predictions", block - step, below=1e-11)
    least = np.array([ltb.minimal_risks(p, M)[2] for p, M, *_ in cases])
    error = all_risks(cases)[:, 0] / least - 1
    measured("relative error of the risk", error, below=1e-13)
    hold, _, _, rank = distances(*_sets(cases))
    assert np.all(rank == 1)
    assert not np.any(hold)  # the conditions are sufficient there, not necessary


@jax.jit
def derivatives(z, problem, M):
    """Risk of the block with parameters z, gradient and Hessian."""

    def risk(z):
        return reg.risk(_parts(z, 2), problem, M)

    return risk(z), jax.grad(risk)(z), jax.hessian(risk)(z)


@pytest.mark.statement("Zhang: Theorem 6.3, remark")
def test_there_are_spurious_local_minima(measured):
    # v = 0, A = 0, c = beta*, q g' = (phi_1 / omega_1) e_1 e_1' at d = 2, M = 2
    M, noise_var, phi, mean = 2, 0.25, np.array([1.0, 0.05]), np.array([1.0, -2.0])
    problem = LinearPopulation(np.eye(2), mean, np.diag(phi), noise_var)
    tau = phi.sum() + noise_var
    omega, size = ((M + 1) * phi + tau) / M, np.sum(phi**2)
    gain = phi[0] / omega[0]
    labels = 2 * tau**2 / M - 2 * phi[0] ** 2 / M + 2 * (1 + 2 / M) * size
    assert gain**2 * labels > M * phi[1] ** 2  # the condition for a minimum
    axis = np.sqrt(gain) * np.array([1.0, 0.0])
    start = np.concatenate([mean, axis, axis, [0.0], -np.outer(mean, axis).ravel()])

    value, gradient, hessian = derivatives(start, problem, M)
    measured("gradient", gradient, below=1e-14)
    curvatures = np.linalg.eigvalsh(hessian)
    measured("lowest curvature, of the free scale", curvatures[0], below=1e-13)
    measured("next curvature", curvatures[1])
    assert curvatures[1] > 1e-4
    excess = float(value - reg.optimum(reg.LTB, problem, M).risk)
    measured("error of the excess", excess - phi[1] ** 2 / omega[1], below=1e-14)
    found = reg.landscape.spurious_minimum(problem, M)
    measured("error of the library's excess", found.excess - excess, below=1e-14)
    at = reg.risk(found.parameters, problem, M)
    np.testing.assert_allclose(at, value, rtol=1e-14)
    np.testing.assert_allclose(found.margin, gain**2 * labels - M * phi[1] ** 2)
    assert found.is_local_minimum
    small = problem.with_(task_cov=np.diag(phi) / 100, noise_var=noise_var / 100)
    assert 0 < reg.landscape.spurious_minimum(small, M).margin < 1
    assert reg.landscape.spurious_minimum(small, M).is_local_minimum
    # and nothing near is lower, along random directions
    rng = np.random.default_rng(58)
    for step in 1e-2 * rng.normal(size=(100, 11)):
        assert derivatives(start + step, problem, M)[0] > value


@pytest.mark.statement("Zhang: Theorem 6.3, remark")
def test_where_the_condition_fails_the_point_is_a_saddle(measured):
    # many examples: the margin is negative, and the Hessian has a falling direction
    problem = LinearPopulation(np.eye(2), np.zeros(2), np.diag([1.0, 0.9]), 0.25)
    found = reg.landscape.spurious_minimum(problem, 30)
    assert not found.is_local_minimum
    at = found.parameters
    z = np.concatenate([np.ravel(part) for part in (at.c, at.p, at.u, at.v, at.U)])

    _, gradient, hessian = derivatives(z, problem, 30)
    lowest = np.linalg.eigvalsh(hessian)[0]
    measured("gradient", gradient, below=1e-14)
    measured("lowest curvature", lowest)
    assert lowest < -1e-2


@pytest.mark.statement("Zhang: Theorem 6.3, remark")
def test_between_the_spurious_and_the_best_there_is_a_hill(measured):
    problem = LinearPopulation(np.eye(2), np.ones(2), np.diag([1.0, 0.05]), 0.25)
    angles = np.linspace(0, np.pi / 2, 201)
    profile = np.asarray(reg.landscape.excess_profile(problem, 2, angles))
    np.testing.assert_allclose(
        profile[0], reg.landscape.spurious_minimum(problem, 2).excess, rtol=1e-12
    )
    np.testing.assert_allclose(profile[-1], 0, atol=1e-14)
    measured("height of the hill over the spurious minimum", profile.max() - profile[0])
    assert profile.max() > 2 * profile[0]
    # every point of it is the risk of a block with these scores
    assert np.all(profile >= -1e-15)
