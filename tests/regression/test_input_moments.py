"""The exact risk of one gradient step for inputs that are not Gaussian."""

import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression import (
    Averaging,
    LinearPopulation,
    LinearStep,
    Steps,
    optimum,
    risk,
)

ATOMS = np.array([[1.0, 0.3], [-2.0, 0.5], [0.2, -1.4]])
CHANCES = np.array([0.5, 0.2, 0.3])
GAMMA = np.array([[0.5, 0.1], [-0.2, 0.3]])


@functools.cache
def atoms():
    """A task whose inputs take three values, and their fourth moments."""
    H = np.einsum("a,ai,aj->ij", CHANCES, ATOMS, ATOMS)
    fourth = np.einsum("a,ai,aj,ak,al->ijkl", CHANCES, *[ATOMS] * 4)
    mean, cov = np.array([0.4, -1.0]), np.array([[1.0, 0.3], [0.3, 0.7]])
    return LinearPopulation(H, mean, cov, 0.25, fourth_moment=fourth)


def step_risk(Gamma, task, k):
    return risk(LinearStep(Gamma), task, k)


def step_size(task, k):
    return optimum(Steps(1), task, k).model.step_sizes[0]


def enumerated(Gamma, num_examples):
    """The risk as a sum over all prompts, with weights and noises of the moments."""
    task = atoms()
    root = np.linalg.cholesky(task.task_cov)
    steps = np.sqrt(2) * np.concatenate([root.T, -root.T])
    weights = np.asarray(task.task_mean) + steps
    total = 0.0
    for places in itertools.product(range(3), repeat=num_examples + 1):
        chance = np.prod(CHANCES[list(places)])
        X, x = ATOMS[list(places[:-1])], ATOMS[places[-1]]
        for w in weights:
            for signs in itertools.product((-1, 1), repeat=num_examples):
                y = X @ w + 0.5 * np.array(signs)
                error = x @ Gamma @ X.T @ y / num_examples - x @ w
                total += chance * error**2 / 4 / 2**num_examples
    return total + 0.25


@pytest.mark.slow
def test_the_risk_is_the_sum_over_all_prompts():
    task = atoms()
    for k in (1, 2):
        found = step_risk(GAMMA, task, k)
        np.testing.assert_allclose(found, enumerated(GAMMA, k), rtol=1e-12)
        found = risk(Averaging(), task, k)
        np.testing.assert_allclose(found, enumerated(np.eye(2), k), rtol=1e-12)
        step = float(step_size(task, k))
        best = optimum(LinearStep, task, k)
        expected = enumerated(np.asarray(best.model.Gamma), k)
        np.testing.assert_allclose(best.risk, expected, rtol=1e-12)
        near = [enumerated(s * np.eye(2), k) for s in (0.99 * step, step, 1.01 * step)]
        np.testing.assert_allclose(near[2] - near[1], near[0] - near[1], rtol=1e-6)
        assert best.risk < near[1] < near[0]
    change = jax.grad(risk)(best.model, task, 2)
    np.testing.assert_allclose(change.Gamma, 0, atol=1e-12)


def gaussian_moments(H):
    pairs = ("ij,kl", "ik,jl", "il,jk")
    return sum(np.einsum(f"{pair}->ijkl", H, H) for pair in pairs)


@pytest.mark.slow
def test_gaussian_moments_give_the_gaussian_risks():
    task = atoms().with_(fourth_moment=None)
    fourth = gaussian_moments(np.asarray(task.input_cov))
    mean, cov = task.task_mean, task.task_cov
    diagonal = LinearPopulation(np.diag([2.0, 0.5]), mean, cov, 0.25)
    cases = ((task, fourth), (diagonal, 3.0), (diagonal, [3.0, 3.0]))
    for (own, moment), k in itertools.product(cases, (0, 3)):
        known = own.with_(fourth_moment=moment)
        found, gaussian = everything(known, k), everything(own, k)
        for value, expected in zip(found, gaussian, strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-14)


def everything(task, k):
    """The risk of one step, of the best step, both steps."""
    best = optimum(LinearStep, task, k)
    own = step_risk(GAMMA, task, k)
    return own, best.risk, best.model.Gamma, step_size(task, k)


def test_the_baseline_of_von_oswald():
    # x ~ U(-1/2, 1/2)^10, w ~ N(0, I), 10 examples, half the squared error
    task = LinearPopulation(np.eye(10) / 12, np.zeros(10), np.eye(10), 0.0)
    task = task.with_(fourth_moment=1.8)
    best = optimum(Steps(1), task, 10)
    step = best.model.step_sizes[0]
    np.testing.assert_allclose(step / 10, 12 / 19.8, rtol=1e-12)  # 0.60606
    np.testing.assert_allclose(best.risk / 2, 0.2062290, atol=5e-8)
    found = step_risk(step * np.eye(10), task, 10)
    np.testing.assert_allclose(found, best.risk, rtol=1e-12)
    layer = optimum(LinearStep, task, 10)
    np.testing.assert_allclose(layer.risk, best.risk, rtol=1e-12)
    np.testing.assert_allclose(layer.model.Gamma, step * np.eye(10), atol=1e-12)


def test_simulation_agrees():
    rng, d, k, prompts = np.random.default_rng(0), 3, 4, 40_000
    scale, Gamma = np.array([1.0, 2.0, 0.5]), rng.normal(size=(3, 3)) / 5
    # Uniform, two-valued and Laplace coordinates: kurtosis 9/5, 1 and 6
    shape = (prompts, k + 1)
    columns = (
        rng.uniform(-np.sqrt(3), np.sqrt(3), shape),
        rng.choice([-1.0, 1.0], shape),
        rng.laplace(scale=np.sqrt(0.5), size=shape),
    )
    x = np.stack(columns, axis=-1) * scale
    w = rng.normal(size=(prompts, d))
    y = np.einsum("pki,pi->pk", x, w) + 0.5 * rng.normal(size=shape)
    update = np.einsum("ij,pkj,pk->pi", Gamma, x[:, :k], y[:, :k]) / k
    errors = (np.einsum("pi,pi->p", update, x[:, k]) - y[:, k]) ** 2
    task = LinearPopulation(np.diag(scale**2), np.zeros(d), np.eye(d), 0.25)
    exact = step_risk(Gamma, task.with_(fourth_moment=[1.8, 1.0, 6.0]), k)
    z = (errors.mean() - float(exact)) / (errors.std() / np.sqrt(prompts))
    assert abs(z) < 4
    gaussian = float(step_risk(Gamma, task, k))
    assert abs(errors.mean() - gaussian) > 5 * errors.std() / np.sqrt(prompts)


@pytest.mark.parametrize(
    ("fourth", "message"),
    [
        (0.5, "expected a kurtosis >= 1, got 0.5"),
        (np.nan, "expected finite entries, got nan"),
        ([3.0, 3.0, 3.0], "expected shape (2,), got (3,)"),
        (np.ones((2, 2)), "expected shape (2, 2, 2, 2), got (2, 2)"),
        (
            1.8,
            "expected (d, d, d, d), or entries off the diagonal of input_cov <= 1e-6 "
            "of the largest, got 0.10213414634146342",
        ),
        (
            np.arange(16.0).reshape(2, 2, 2, 2),
            "expected symmetry in all axes (relative differences <= 1e-6), got "
            "0.26666666666666666",
        ),
        (-np.ones((2, 2, 2, 2)), "expected E x_i^2 x_j^2 >= 0, got -1.0"),
    ],
)
def test_moments_of_no_distribution_are_refused(fourth, message):
    task = atoms()
    with pytest.raises(ValueError, match=f"^fourth_moment: {re.escape(message)}$"):
        task.with_(fourth_moment=fourth)
    own = jnp.asarray(fourth)
    if own.ndim in (0, 4):
        run = jax.jit(lambda m: step_size(task.with_(fourth_moment=m), 3))
        assert np.isnan(run(own))
