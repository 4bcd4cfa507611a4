"""Descent in steps and on samples, beside the flow and beside NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from icltheory import regression as reg
from icltheory.regression import LinearPopulation, descend, flow
from tests import oracles_ltb as oracles
from tests.oracles import z_score

pytestmark = pytest.mark.statement("Zhang: Section 6, descent")

DIM, M = 2, 4


def problem_and_start(seed=0):
    rng = np.random.default_rng([64, seed])
    population = oracles.random_population(rng, DIM)
    start = reg.GDBeta(rng.normal(size=DIM), 0.1 * rng.normal(size=(DIM, DIM)))
    return LinearPopulation(*population), population, start


def test_steps_are_those_of_the_gradient(measured):
    problem, population, start = problem_and_start()
    path = descend(start, problem, M, 0.01, 20, record_every=5)
    beta, Gamma = np.asarray(start.beta), np.asarray(start.Gamma)
    for k in range(20):
        if k % 5 == 0:
            np.testing.assert_allclose(path.model.beta[k // 5], beta, rtol=1e-12)
            np.testing.assert_allclose(path.model.Gamma[k // 5], Gamma, rtol=1e-12)
        in_beta, in_Gamma = oracles.risk_slopes(beta, Gamma, population, M)
        beta, Gamma = beta - 0.01 * in_beta, Gamma - 0.01 * in_Gamma
    measured("difference after 20 steps", path.model.Gamma[-1] - Gamma, below=1e-13)
    np.testing.assert_allclose(path.times, [0, 0.05, 0.1, 0.15, 0.2], rtol=1e-12)


def test_descent_fails_where_its_last_weights_are_not_finite():
    problem, _, start = problem_and_start()
    path = descend(start, problem, M, 1.0, 10)
    assert np.isfinite(path.model.Gamma).all(axis=(1, 2)).tolist()[:2] == [True, True]
    assert not path.succeeded


def test_a_linear_step_flows_in_closed_form_and_descends_as_numpy(measured):
    problem, population, start = problem_and_start()
    step, times = reg.LinearStep(start.Gamma), np.array([0.0, 0.1, 1.0, 1e4])

    def slope(_, Gamma):
        beta, Gamma = np.zeros(DIM), np.reshape(Gamma, (DIM, DIM))
        return -np.ravel(oracles.risk_slopes(beta, Gamma, population, M)[1])

    path, Gamma = flow(step, problem, M, times), np.array(step.Gamma)
    tight = {"t_eval": times[:3], "rtol": 1e-10, "atol": 1e-12}
    found = solve_ivp(slope, (0, 1), Gamma.ravel(), **tight).y.T
    difference = path.model.Gamma[:3] - found.reshape(3, DIM, DIM)
    measured("difference from SciPy", difference, below=1e-8)
    best = reg.optimum(reg.LinearStep, problem, M)
    np.testing.assert_allclose(path.risk[-1], best.risk, rtol=1e-12)
    descent = descend(step, problem, M, 0.01, 20, record_every=20)
    for _ in range(20):
        Gamma = Gamma + 0.01 * slope(0, Gamma).reshape(DIM, DIM)
    np.testing.assert_allclose(descent.model.Gamma[-1], Gamma, rtol=1e-12)


@pytest.mark.slow
def test_descent_is_the_flow_to_first_order_in_the_step(measured):
    problem, _, start = problem_and_start(1)
    end = jnp.array([1.0])
    exact = flow(start, problem, M, end, rtol=1e-11, atol=1e-13)
    errors = []
    for steps in (400, 800, 1600):
        path = descend(start, problem, M, 1 / steps, steps, record_every=steps)
        errors.append(float(np.abs(path.model.Gamma[-1] - exact.model.Gamma[0]).max()))
    ratios = np.array(errors[:-1]) / errors[1:]
    measured("error of steps over that of half steps", ratios[-1])
    np.testing.assert_allclose(ratios, 2, rtol=0.02)


def test_a_sampled_step_is_the_gradient_on_its_prompts():
    """The prediction is x' (beta - Gamma X' (X beta - y) / M), by loops."""
    problem, _, start = problem_and_start(4)
    key, B, eta = jax.random.key(3), 5, 0.01
    path = descend(start, problem, M, eta, 1, key=key, batch_size=B)
    prompt = problem.sample(jax.random.fold_in(key, 0), M, B)
    X, y, x, label = map(
        np.asarray, (prompt.X, prompt.y, prompt.x_query, prompt.y_query)
    )
    beta, Gamma = np.asarray(start.beta), np.asarray(start.Gamma)
    by_beta, by_Gamma = np.zeros(DIM), np.zeros((DIM, DIM))
    for i in range(B):
        residual = X[i].T @ (X[i] @ beta - y[i]) / M
        error = x[i] @ (beta - Gamma @ residual) - label[i]
        by_beta += 2 * error * (np.eye(DIM) - Gamma @ X[i].T @ X[i] / M).T @ x[i] / B
        by_Gamma -= 2 * error * np.outer(x[i], residual) / B
    np.testing.assert_allclose(path.model.beta[1], beta - eta * by_beta, rtol=1e-12)
    np.testing.assert_allclose(path.model.Gamma[1], Gamma - eta * by_Gamma, rtol=1e-12)


@pytest.mark.slow
def test_a_sampled_step_is_the_gradient_on_average(measured):
    problem, _, start = problem_and_start(2)
    eta = 1e-3

    @jax.jit
    @jax.vmap
    def step(key):
        path = descend(start, problem, M, eta, 1, key=key, batch_size=2_000)
        end = jax.tree.map(lambda a: a[-1], path.model)
        return jax.tree.map(lambda a, b: (a - b) / eta, start, end)

    slopes = step(jax.random.split(jax.random.key(0), 50))
    exact = jax.jit(jax.grad(reg.risk))(start, problem, M)
    for name in ("beta", "Gamma"):
        sample = np.asarray(getattr(slopes, name)).reshape(50, -1)
        z = z_score(sample, np.ravel(getattr(exact, name)))
        measured(f"largest z, {name}", z, below=4)


@pytest.mark.slow
def test_sampled_descent_follows_the_flow_up_to_its_noise(measured):
    # seeds 0 to 15: the mean path is that of the flow within standard errors
    problem, _, start = problem_and_start(3)
    eta, steps = 2e-3, 500
    times = eta * jnp.arange(0, steps + 1, 100)
    exact = flow(start, problem, M, times)

    @jax.jit
    @jax.vmap
    def run(key):
        return descend(
            start, problem, M, eta, steps, key=key, batch_size=64, record_every=100
        ).model.Gamma

    paths = np.asarray(run(jax.vmap(jax.random.key)(jnp.arange(16))))
    error = paths.std(axis=0, ddof=1)[1:] / 4
    z = (paths.mean(axis=0) - exact.model.Gamma)[1:] / error
    measured("largest z of the mean path", z, below=5)
    # and within the first order of the step, which is not noise
    moved = np.abs(exact.model.Gamma[-1] - exact.model.Gamma[0]).max()
    assert error.max() < 0.05 * moved
