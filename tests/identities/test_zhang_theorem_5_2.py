"""Theorem 5.2: the best GD-beta and all that are as good."""

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
from tests.derivatives import slope_error


@jax.jit
@jax.vmap
def solve(H, mean, Psi, noise_var, M, shift, change):
    """The optimum, a random minimiser, and models that leave the set of minimisers."""
    problem = LinearPopulation(H, mean, Psi, noise_var)
    found = reg.optimum(reg.GDBeta, problem, M)
    best, least = found.model, found.risk
    every = reg.landscape.minimizers(problem, M)
    other, P = every.member(shift, change), every.projector
    left = {
        "beta": reg.GDBeta(other.beta + P @ shift, other.Gamma),
        "Gamma": reg.GDBeta(other.beta, other.Gamma + P @ change @ P),
    }
    return {
        "best": best,
        "least": least,
        "risk": reg.risk(best, problem, M),
        "gradient": jax.grad(reg.risk)(best, problem, M),
        "other": other,
        "risk of other": reg.risk(other, problem, M),
        "distance of other": jnp.stack(every.distance(other)),
        "increase": {name: reg.risk(m, problem, M) - least for name, m in left.items()},
        "distance": {name: jnp.stack(every.distance(m)) for name, m in left.items()},
    }


def solve_all(populations, lengths, rng):
    d = len(populations[0].mean)
    cases = [
        (*p, M, 3 * rng.normal(size=d), rng.normal(size=(d, d)))
        for p, M in zip(populations, lengths, strict=True)
    ]
    return ltb.in_chunks(solve, cases, 16)


def singular_problems(rng, d, count=16):
    """Half of them with H of lower rank; lengths of 1 to 29."""
    populations = [
        ltb.singular_population(rng, d)
        if k % 2
        else ltb.random_population(rng, d, rng.integers(1, d))
        for k in range(count)
    ]
    return populations, rng.integers(1, 30, size=count)


# --- the optimum


@pytest.mark.statement("Zhang: Theorem 5.2")
@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32), d=st.sampled_from([2, 4]))
def test_the_optimum_is_stationary_with_the_smallest_risk(seed, d, measured):
    rng = np.random.default_rng(seed)
    populations, lengths = singular_problems(rng, d)
    found = solve_all(populations, lengths, rng)
    gradient = max(np.abs(g).max() for g in jax.tree.leaves(found["gradient"]))
    measured("gradient at the optimum", gradient, below=2e-13)
    for k, (population, M) in enumerate(zip(populations, lengths, strict=True)):
        forms = np.array([*ltb.minimal_risks(population, M), found["risk"][k]])
        error = forms / found["least"][k] - 1
        measured("relative error of the four forms", error, below=2e-13)
        np.testing.assert_array_equal(found["best"].beta[k], population.mean)
        expected = ltb.best_preconditioner(population, M)
        error = np.abs(found["best"].Gamma[k] - expected).max() / np.abs(expected).max()
        measured("relative error of Gamma", error, below=1e-12)


@pytest.mark.statement("Zhang: Theorem 5.2")
@pytest.mark.parametrize("d", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_minimiser_from_a_random_start_finds_it(d, measured):
    rng = np.random.default_rng([21, d])

    @jax.jit
    @jax.value_and_grad
    def risk(z, problem, M):
        return reg.risk(reg.GDBeta(z[:d], z[d:].reshape(d, d)), problem, M)

    for _ in range(6):
        problem = LinearPopulation(*ltb.random_population(rng, d))
        M = jnp.asarray(rng.integers(1, 20))
        start = 2 * rng.normal(size=d + d * d)
        _, end, _ = ltb.lowest(lambda z, p=problem, M=M: risk(z, p, M), [start])
        best = reg.optimum(reg.GDBeta, problem, M)
        measured("relative error of the risk", end.fun / best.risk - 1, below=1e-13)
        model = np.append(best.model.beta, best.model.Gamma)
        measured("distance to the optimum", end.x - model, below=1e-7)


@pytest.mark.statement("Zhang: Theorem 5.2")
def test_the_optimum_is_smallest_also_at_another_prior_mean(measured):
    # R_min and Gamma* do not depend on beta*
    rng = np.random.default_rng(22)
    first = ltb.random_population(rng, 2)
    populations = [first._replace(mean=s * first.mean) for s in range(16)]
    found = solve_all(populations, [3] * 16, rng)
    spread = np.ptp(found["least"]) / found["least"][0]
    measured("spread of the smallest risk over beta*", spread)
    assert spread == 0
    assert np.ptp(found["best"].Gamma, axis=0).max() == 0


# --- the whole set of minimisers


@pytest.fixture(scope="module", params=[2, 4])
def solved(request):
    """Populations of one dimension, lengths, and ``solve`` of all."""
    rng = np.random.default_rng([23, request.param])
    populations, lengths = singular_problems(rng, request.param)
    found = solve_all(populations, lengths, rng)
    return populations, lengths, jax.tree.map(np.asarray, found)


@pytest.mark.statement("Zhang: Theorem 5.2")
def test_every_member_of_the_set_attains_the_smallest_risk(solved, measured):
    *_, found = solved
    error = found["risk of other"] / found["least"] - 1
    measured("relative error of the risk", error, below=1.4e-14)
    assert np.abs(found["distance of other"]).max() < 1e-13
    moved = np.abs(found["other"].Gamma - found["best"].Gamma).max(axis=(1, 2))
    assert np.all(moved[::2] > 1e-2)  # H singular there: the set is more than a point


@pytest.mark.statement("Zhang: Theorem 5.2")
def test_all_members_are_one_function_of_every_prompt(solved, measured):
    *problems, found = solved
    rng = np.random.default_rng(24)
    for k, (population, M) in enumerate(zip(*problems, strict=True)):
        prompts = ltb.random_prompts(rng, population, M, 50)
        best, other = (
            oracles.gradient_step_predictions(m.beta[k], m.Gamma[k], *prompts)
            for m in (found["best"], found["other"])
        )
        measured("difference", best - other, below=6e-13)


@pytest.mark.statement("Zhang: Theorem 5.2")
def test_leaving_the_set_raises_the_risk(solved, measured):
    *_, found = solved
    for name, column in (("beta", 0), ("Gamma", 1)):
        increase = found["increase"][name]
        measured(f"smallest increase, {name}", increase.min())
        assert np.all(increase > 1e-6)
        assert np.all(found["distance"][name][:, column] > 1e-3)
        assert np.all(np.abs(found["distance"][name][:, 1 - column]) < 1e-13)


@pytest.mark.statement("Zhang: Theorem 5.2")
def test_the_projector_is_on_the_image_of_the_input_covariance(measured):
    rng = np.random.default_rng(26)
    for rank in (1, 2, 3):
        population = ltb.random_population(rng, 3, rank)
        found = reg.landscape.minimizers(LinearPopulation(*population), 4).projector
        measured("error", found - ltb.projector(population.H), below=1e-14)


# --- many examples


@pytest.mark.statement("Zhang: Theorem 5.2, many examples")
def test_with_many_examples_the_step_is_newtons(measured):
    rng = np.random.default_rng(27)
    population = ltb.random_population(rng, 4)
    counts = 10 ** np.arange(3, 6)
    found = _lengths(population, counts)
    inverse = np.linalg.inv(population.H)
    tau = ltb.Whitened.of(population, 1).tau
    second = inverse + tau * inverse @ np.linalg.inv(population.Psi) @ inverse
    rest = [
        np.abs(Gamma - inverse + second / M).max() * M**2
        for Gamma, M in zip(found["best"].Gamma, counts, strict=True)
    ]
    measured("change of M^2 rest from 1e4 to 1e5", rest[2] / rest[1] - 1, below=5e-2)
    signal = np.trace(population.H @ population.Psi)
    limit = 5 * signal + 4 * population.noise_var
    rate = counts * (found["least"] - population.noise_var)
    near, nearer = rate[1:] / limit - 1
    measured("M (R_min - noise) at M = 1e5 against the limit", nearer, below=1e-3)
    assert abs(nearer) < 0.2 * abs(near)


@pytest.mark.statement("Zhang: Theorem 5.2, many examples")
def test_with_many_examples_a_singular_prior_leaves_its_own_limit(measured):
    rng = np.random.default_rng(28)
    population = ltb.random_population(rng, 4, rank_Psi=2)
    found = _lengths(population, np.array([10**3, 10**5, 10**7]))
    white = ltb.Whitened.of(population, 1)
    pseudo = np.linalg.pinv(white.Phi, rcond=1e-10)
    expected = population.Psi @ white.root @ pseudo @ white.inverse
    error = np.abs(found["best"].Gamma[2] - expected).max()
    measured("Gamma at M = 1e7 against the limit", error / np.abs(expected).max())
    assert error < 1e-5 * np.abs(expected).max()
    phi = np.linalg.eigvalsh(white.Phi)[2:]
    rate = 1e7 * (found["least"][2] - population.noise_var) / np.sum(phi + white.tau)
    measured("risk at M = 1e7 against the limit", rate - 1, below=1e-5)


def _lengths(population, counts):
    return solve_all([population] * len(counts), counts, np.random.default_rng(0))


@pytest.mark.statement("Zhang: Theorem 5.2")
def test_the_set_has_derivatives_where_eigenvalues_coincide():
    model = reg.GDBeta(np.array([1.0, 2.0]), 0.1 * np.eye(2))

    def total(scale):
        problem = LinearPopulation(scale * jnp.eye(2), noise_var=0.3)
        return sum(reg.landscape.minimizers(problem, 3).distance(model))

    assert abs(slope_error(total, 1.0)) < 1e-6
