"""Properties of the cost of pretraining, and of its limit in high dimension."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory import regression as reg
from icltheory.regression import GDBeta, LinearPopulation, LinearStep, OneLayer
from icltheory.regression.pretraining import (
    LeadingExcess,
    high_dimensional_limit,
    leading_excess,
    prompts_needed,
    shifted_tasks_limit,
)
from tests.raising import raises

DIM = 3
FAMILIES = LinearStep, GDBeta, reg.LTB


@jax.jit
def costs(H, mean, Psi, noise_var, N):
    population = LinearPopulation(H, mean, Psi, noise_var)
    return [leading_excess(family, population, N) for family in FAMILIES]


def drawn(seed):
    rng = np.random.default_rng(seed)
    A, C, L = rng.normal(size=(3, DIM, DIM))
    mean, noise_var = rng.normal(size=DIM), float(rng.uniform(0.1, 1))
    return (A @ A.T, mean, C @ C.T, noise_var, int(rng.integers(1, 20))), L


@pytest.mark.slow
@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_cost_depends_on_the_tasks_not_on_their_coordinates(seed):
    (H, mean, Psi, noise_var, N), L = drawn(seed)
    step, gd_beta, ltb = costs(H, mean, Psi, noise_var, N)
    back = np.linalg.inv(L)
    other = costs(L @ H @ L.T, back.T @ mean, back.T @ Psi @ back, noise_var, N)
    moved = costs(H, 0 * mean, Psi, noise_var, N)
    for a, b in zip((step, gd_beta, ltb), other, strict=True):
        np.testing.assert_allclose(a.constant, b.constant, rtol=1e-6)
    for a, b in zip((gd_beta, ltb), moved[1:], strict=True):  # these know the mean
        np.testing.assert_allclose(a.constant, b.constant, rtol=1e-9)
    # More weights to fit cost more, where the best risk is the same.
    assert moved[0].constant < gd_beta.constant < ltb.constant
    scaled = costs(H, 2 * mean, 4 * Psi, 4 * noise_var, N)
    np.testing.assert_allclose(scaled[0].constant, 4 * step.constant, rtol=1e-9)


@pytest.mark.slow
def test_cost_in_high_dimension_is_the_limit_of_many_prompts():
    """C / d^2 R* tends to 1, as R* tau / (tau - 1) = R* (1 + 1 / tau + ...)."""
    ratios = []
    for d in (6, 12, 24):
        cost = leading_excess(
            LinearStep, LinearPopulation(np.eye(d) / d, noise_var=0.25), 2 * d
        )
        ratios.append(float(cost.constant / cost.optimum_risk) / d**2 - 1)
    assert ratios[0] > 2 * ratios[2] > 0
    assert abs(2 * ratios[2] - ratios[1]) < 0.02
    limit = high_dimensional_limit(2.0, math.inf, math.inf, 0.25)
    assert float(limit.icl) == pytest.approx(float(cost.optimum_risk), abs=0.03)


@pytest.mark.slow
def test_cost_of_any_layer_is_sampled():
    population = LinearPopulation(np.diag([1.0, 0.5]), noise_var=0.3)
    layer = OneLayer(lambda x, y, query: y * jnp.outer(query, x), degree=2)
    found = leading_excess(layer, population, 5, key=jax.random.key(0))
    exact = leading_excess(LinearStep, population, 5)
    assert float(found.optimum_risk) == pytest.approx(float(exact.optimum_risk))
    assert abs(found.constant - exact.constant) < 4 * found.standard_error
    assert exact.standard_error == 0


@pytest.mark.slow
def test_null_directions_of_the_inputs_cost_nothing():
    full = LinearPopulation(np.diag([1.0, 0.4]), np.ones(2), np.eye(2), 0.2)
    H, mean = np.diag([1.0, 0.4, 0.0]), np.ones(3)
    wide = LinearPopulation(H, mean, np.eye(3), 0.2)
    for family in (LinearStep, reg.LTB):
        a, b = (leading_excess(family, p, 6).constant for p in (full, wide))
        assert float(a) == pytest.approx(float(b), rel=1e-9)


@pytest.mark.slow
def test_both_precisions_agree_in_one_process():
    found = []
    for x64 in (False, True, False):
        with jax.enable_x64(x64):
            task = LinearPopulation.isotropic(2, 0.25)
            found.append(leading_excess(reg.LTB, task, 10).constant)
    assert [x.dtype for x in found] == [np.float32, np.float64, np.float32]
    assert float(found[0]) == pytest.approx(float(found[1]), rel=1e-5)


def test_other_families_and_means_are_refused():
    population = LinearPopulation.isotropic(2, 0.1, mean=np.ones(2))
    message = "family: expected LinearStep, GDBeta, LTB, LSA or OneLayer(phi), got "
    with raises(message + "Ridge"):
        leading_excess(reg.Ridge, population, 3)
    with raises("key: expected one to sample prompts, got None"):
        leading_excess(OneLayer(lambda x, y, q: y * q, degree=2), population, 3)
    with raises("population: expected task_mean = 0 for an LSA, got 1.0"):
        leading_excess(reg.LSA, population, 3)


def test_prompts_of_a_record_give_its_risk():
    cost = LeadingExcess(0.5, 20.0)
    assert float(cost.risk(cost.prompts_needed(0.6))) == pytest.approx(0.6)
    assert float(cost.prompts_needed(0.5)) == math.inf


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.floats(0.2, 5), st.floats(0.2, 5), st.floats(0.1, 5), st.floats(0, 1))
def test_limit_is_bounded_by_its_noise_and_falls_with_tasks(alpha, kappa, tau, rho):
    found = high_dimensional_limit(alpha, kappa, tau, rho, ridge=0.2)
    best = high_dimensional_limit(alpha, kappa, math.inf, rho)
    more = high_dimensional_limit(alpha, 1.5 * kappa, math.inf, rho)
    assert rho < best.in_distribution <= found.in_distribution
    assert best.in_distribution <= best.icl * (1 + 1e-9)
    assert more.icl <= best.icl
    same = shifted_tasks_limit(alpha, kappa, tau, rho, np.eye(2), np.eye(2), ridge=0.2)
    assert float(same.icl) == pytest.approx(float(found.icl), rel=1e-9)
    # Units: tasks and noise of four times the variance.
    large = shifted_tasks_limit(
        alpha, kappa, tau, 4 * rho, 4 * np.eye(2), 4 * np.eye(2), ridge=0.8
    )
    assert float(large.icl) == pytest.approx(4 * float(found.icl), rel=1e-9)


def test_derivatives_are_those_of_differences():
    @jax.jit
    def icl(v):
        return high_dimensional_limit(*v[:4], ridge=v[4]).icl

    slope = jax.jit(jax.grad(icl))
    for point in ([2.0, 1.5, 3.0, 0.25, 0.1], [1.2, 0.7, 0.6, 0.3, 0.05]):
        v = jnp.array(point)
        shifts = 1e-5 * jnp.eye(5)
        numeric = [float(icl(v + s) - icl(v - s)) / 2e-5 for s in shifts]
        np.testing.assert_allclose(slope(v), numeric, rtol=1e-6, atol=1e-8)
    at_zero = slope(jnp.array([2.0, 2.0, 4.0, 0.25, 0.0]))[4]
    step = icl(jnp.array([2.0, 2.0, 4.0, 0.25, 1e-5])) - icl(
        jnp.array([2.0, 2.0, 4.0, 0.25, 0.0])
    )
    assert float(at_zero) == pytest.approx(float(step) / 1e-5, rel=1e-3)


def test_a_plan_reaches_its_risk():
    for risk, dim, N, rho, k in ((1.0, 40, 80, 0.25, 80), (0.6, 30, 90, 0.1, math.inf)):
        plan = prompts_needed(risk, dim, N, rho, num_tasks=k)
        tau = plan.num_prompts / dim**2
        reached = high_dimensional_limit(N / dim, k / dim, tau, rho).icl
        assert float(reached) == pytest.approx(risk, rel=1e-9)
        tasks = plan.num_tasks / dim
        least = high_dimensional_limit(N / dim, tasks, math.inf, rho).icl
        assert float(least) == pytest.approx(risk, rel=1e-9)
    impossible = prompts_needed(0.3, 40, 80, 0.25)
    assert float(impossible.num_prompts) == float(impossible.num_tasks) == math.inf
    assert (
        float(prompts_needed(1.0, 40, 80, 0.25, num_tasks=10).num_prompts) == math.inf
    )
