"""Wu et al.'s bound on the number of tasks, from memory, against one simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.regression import LinearPopulation

pytestmark = pytest.mark.statement("Wu: Theorem 4.1 (from memory)")

DIM, EXAMPLES, RUNS = 6, 16, 100
LAM = np.arange(1.0, DIM + 1) ** -1.5
bound_of = jax.jit(reg.transfer.task_complexity_bound, static_argnums=(1, 2))


def the_problem():
    return LinearPopulation(np.diag(LAM), np.zeros(DIM), np.eye(DIM), 1.0)


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
    start = jnp.zeros((RUNS, DIM, DIM))
    Gamma = jax.lax.scan(update, start, (steps, keys))[0]
    return jax.vmap(lambda G: reg.excess(reg.LinearStep(G), problem, EXAMPLES).total)(
        Gamma
    )


def test_steps_are_halved_log_t_times():
    for T in (2, 5, 256):
        expected = [0.3 * 0.5 ** int(t * np.log2(T) / T) for t in range(1, T + 1)]
        np.testing.assert_allclose(
            reg.transfer.halving_steps(T, 0.3), expected, rtol=1e-14
        )


def test_terms_of_the_task_bound_are_as_written(measured):
    rng = np.random.default_rng(0)
    V = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]
    H = V @ np.diag(LAM) @ V.T
    psi2, noise_var, N, T, step = 1.3, 0.4, 7, 50, 0.05
    problem = LinearPopulation(H, np.zeros(DIM), psi2 * np.eye(DIM), noise_var)
    start = 0.3 * H @ H
    got = bound_of(problem, N, T, step, start)
    inverse = (np.trace(H) + noise_var / psi2) / N * np.eye(DIM) + (N + 1) / N * H
    feature = psi2 * H @ inverse
    gap = start - np.linalg.inv(inverse)
    for rate in np.asarray(reg.transfer.halving_steps(T, step)):
        gap = (np.eye(DIM) - rate * H @ feature) @ gap
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
    wrong = rng.normal(size=(DIM, DIM))
    assert not bound_of(problem, N, T, step, wrong).commutes


@pytest.mark.slow
def test_simulated_excess_agrees_with_the_unverified_task_bound(measured):
    # one instance is no verification: the statement itself is from memory
    T = 512
    problem = the_problem()
    step = float(bound_of(problem, EXAMPLES, T, 0.0).largest_step) / 3
    excess = np.asarray(excesses(problem, reg.transfer.halving_steps(T, step)))
    total = float(bound_of(problem, EXAMPLES, T, step).total)
    ratio = excess.mean() / total
    measured("excess over bias and variance", ratio)
    measured("its standard error", excess.std() / np.sqrt(RUNS) / total)
    assert 0.1 < ratio < 3
