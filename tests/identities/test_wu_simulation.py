"""Wu et al. (2024) at one setting: the least risk, and d^2 / T for T tasks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.regression import LinearPopulation, pretraining

pytestmark = pytest.mark.statement("Wu: number of tasks, simulated")

LAM, N, NOISE = np.array([1, 0.7, 0.5, 0.3, 0.2]), 20, 0.25
DIM = len(LAM)
optimum_of = jax.jit(lambda *given: reg.optimum(reg.LinearStep, *given))


def the_problem():
    return LinearPopulation(np.diag(LAM), np.zeros(DIM), np.eye(DIM), NOISE)


def features(rng, T):
    """One query a task: x (X^T y / N)^T, flat, and its label, as NumPy draws them."""
    beta, X = rng.normal(size=(T, DIM)), rng.normal(size=(T, N, DIM)) * np.sqrt(LAM)
    y = np.einsum("tnd,td->tn", X, beta) + np.sqrt(NOISE) * rng.normal(size=(T, N))
    x = rng.normal(size=(T, DIM)) * np.sqrt(LAM)
    h = np.einsum("tnd,tn->td", X, y) / N
    label = np.sum(x * beta, axis=1) + np.sqrt(NOISE) * rng.normal(size=T)
    return (x[:, :, None] * h[:, None]).reshape(T, -1), label


@pytest.mark.slow
def test_least_risk_of_one_step_is_that_of_the_simulation(measured):
    optimum = optimum_of(the_problem(), N)
    measured("R*", optimum.risk)
    assert optimum.risk == pytest.approx(0.8815, abs=5e-5)
    inputs, label = features(np.random.default_rng(0), 100_000)
    squares = (inputs @ np.asarray(optimum.model.Gamma).ravel() - label) ** 2
    z = squares.mean() - float(optimum.risk)
    z /= squares.std(ddof=1) / np.sqrt(len(squares))
    measured("z-score of 100,000 prompts", z, below=4)


def test_excess_of_least_squares_is_of_order_d_squared_over_tasks(measured):
    rng = np.random.default_rng(1)
    problem = the_problem()
    cost = jax.jit(lambda: pretraining.leading_excess(reg.LinearStep, problem, N))()
    least, exact = float(cost.optimum_risk), float(cost.constant)
    measured("tr(A^-1 B) / (d^2 R*)", exact / (DIM**2 * least))
    excess = jax.jit(
        jax.vmap(lambda Gamma: reg.excess(reg.LinearStep(Gamma), problem, N).total)
    )
    for T in (200, 400, 1600):
        fits = []
        for _ in range(20):
            inputs, label = features(rng, T)
            gram = inputs.T @ inputs
            fits.append(np.linalg.solve(gram, inputs.T @ label).reshape(DIM, DIM))
        ratio = np.asarray(excess(jnp.asarray(np.stack(fits)))) * T / (DIM**2 * least)
        measured("excess T / (d^2 R*)", ratio.mean())
        error = ratio.std(ddof=1) / np.sqrt(len(ratio))
        measured("its standard error", error)
        measured("z of it", (ratio.mean() - exact / (DIM**2 * least)) / error, below=3)
