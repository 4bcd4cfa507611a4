"""Theorem 4.1: the gap between attention with and without an MLP, and its bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.regression import LinearPopulation
from tests import oracles_ltb as ltb
from tests.derivatives import slope_error

pytestmark = pytest.mark.statement("Zhang: Theorem 4.1")


@jax.jit
@jax.vmap
def bounds(H, mean, Psi, noise_var, M):
    problem = LinearPopulation(H, mean, Psi, noise_var)
    return reg.gap(problem, M)


@jax.jit
@jax.vmap
def gaps(H, mean, Psi, noise_var, M, key):
    problem = LinearPopulation(H, mean, Psi, noise_var)
    model = reg.optimum(reg.LSA, problem, M, key=key, num_starts=12).model
    return reg.excess(model, problem, M).total


def upper_of(batch):
    return jax.vmap(lambda gap: gap.upper)(batch)


def wild_population(rng, d):
    """H and Psi singular more often than not, noise and mean over three decades."""
    H = ltb.random_covariance(rng, d, rng.integers(1, d + 1), decades=1.0)
    Psi = ltb.random_covariance(rng, d, rng.integers(1, d + 1), decades=1.0)
    signal = np.trace(H @ Psi)
    noise_var = signal * 10 ** rng.uniform(-3, 2)
    mean = rng.normal(size=d)
    size = 10 ** rng.uniform(-1.5, 1.5) * np.sqrt(signal + noise_var)
    return ltb.Population(H, mean * size / np.sqrt(mean @ H @ mean), Psi, noise_var)


LENGTHS = np.array([1, 2, 3, 5, 10, 30, 100])
LOWER = {
    "proof route": "lower_proof_route",
    "universal": "lower",
    "instance": "lower_instance",
}
UPPER = {"labels": "labels", "values": "values", "zero start": "zero_start"}


@pytest.mark.parametrize("d", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_the_bounds_are_their_formulas_and_in_order(d, measured):
    rng = np.random.default_rng([41, d])
    cases = [(wild_population(rng, d), int(rng.choice(LENGTHS))) for _ in range(30)]
    gap = bounds(*ltb.stacked([(*p, M) for p, M in cases]))
    for k, (population, M) in enumerate(cases):
        expected = ltb.gap_lower_bounds(population, M)
        assert expected["proof route"] <= expected["kappa"] <= expected["universal"]
        for name, field in LOWER.items():
            error = getattr(gap, field)[k] / expected[name] - 1
            measured(f"relative error, lower, {name}", error, below=1e-10)
        expected = ltb.gap_upper_bounds(population, M)
        for name, field in UPPER.items():
            error = abs(getattr(gap, field)[k] - expected[name])
            measured(f"error, upper, {name}", error / expected["labels"])
            assert error < 1e-10 * expected["labels"]
        assert gap.rank_one[k] <= expected["rank one"] * (1 + 1e-12)
    assert np.all(gap.lower_proof_route <= gap.lower)
    assert np.all(gap.lower <= gap.lower_instance * (1 + 1e-14))
    assert np.all(gap.lower_instance <= upper_of(gap) * (1 + 1e-9))


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 4])
def test_the_best_lsa_is_between_the_bounds(d, measured):
    rng, count = np.random.default_rng([42, d]), 48
    cases = [(wild_population(rng, d), int(rng.choice(LENGTHS))) for _ in range(count)]
    parts = ltb.stacked([(*p, M) for p, M in cases])
    found = gaps(*parts, jax.random.split(jax.random.key(d), count))
    gap = bounds(*parts)
    kappa = np.array([ltb.gap_lower_bounds(p, M)["kappa"] for p, M in cases])
    for name, bound in (
        ("2 / (3M + 2)", gap.lower_proof_route),
        ("kappa", kappa),
        ("1 / (M + 1)", gap.lower),
        ("instance", gap.lower_instance),
    ):
        ratio = np.asarray(found) / np.asarray(bound)
        measured(f"gap over lower bound, {name}, smallest less 1", ratio.min() - 1)
        assert np.all(ratio > 1 - 1e-8)
    for name in ("labels", "values", "rank_one", "zero_start"):
        ratio = np.asarray(found) / np.asarray(getattr(gap, name))
        measured(f"gap over upper bound, {name}, largest", ratio.max())
        assert np.all(ratio < 1 + 1e-8)


def test_1_over_m_plus_1_is_the_best_constant(measured):
    # d = 1, phi / sigma^2 -> 0: the exact gap comes down to it
    ratios = []
    for phi in (1e-1, 1e-2, 1e-3):
        start = ltb.Population(np.eye(1), np.ones(1), phi * np.eye(1), 1.0)
        _, limit = reg.gaps.scalar_gap(LinearPopulation(*start), 7)
        problem = LinearPopulation(*start._replace(mean=0.5 * np.full(1, limit)))
        gap, _ = reg.gaps.scalar_gap(problem, 7)
        ratios.append(float(gap / reg.gap(problem, 7).lower))
        measured(f"gap over lower bound at phi = {phi:g}", ratios[-1])
    assert all(ratio > 1 for ratio in ratios)
    np.testing.assert_allclose(ratios, [1.109, 1.009, 1.00088], rtol=3e-4)


@pytest.mark.slow
def test_bounds_are_differentiable_where_eigenvalues_coincide(measured):
    def total(noise_var, scale):
        problem = LinearPopulation.isotropic(3, noise_var, mean=scale * jnp.ones(3))
        gap = reg.gap(problem, 4)
        return gap.lower + gap.lower_instance + gap.upper + gap.lower_proof_route

    for axis in np.eye(2):
        error = slope_error(total, 0.5, 1.3, towards=tuple(axis))
        measured("against differences", error, below=1e-6)


def test_bounds_of_tiny_problems_are_not_lost_in_float32():
    def at(scale):
        parts = scale * np.eye(2), np.ones(2), scale * np.eye(2), scale**2
        problem = LinearPopulation(*(np.asarray(p, np.float32) for p in parts))
        return float(reg.gap(problem, 4).labels) / scale

    np.testing.assert_allclose(at(1e-8), at(1.0), rtol=1e-5)


@pytest.mark.slow
def test_a_small_gap_is_not_lost_between_two_large_risks():
    parts = np.eye(2), np.full(2, 1e-4), np.eye(2), 1.0
    problem = LinearPopulation(*(np.asarray(p, np.float32) for p in parts))
    gap, exact = reg.gap(problem, 4), LinearPopulation(*parts)
    assert 0 < gap.lower_instance <= gap.upper  # the risks are near 2.3
    found, expected = (reg.gap(p, 4).zero_start for p in (problem, exact))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
