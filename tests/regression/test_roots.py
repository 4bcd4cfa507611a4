"""Roots of covariances and what is differentiated through them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression import Bayes, LinearPopulation, estimate_risk
from icltheory.regression._linalg import symmetric_root


def covariance(name):
    rng = np.random.default_rng(3)
    A = rng.normal(size=(3, 3))
    return {
        "general": A @ A.T,
        "identity": np.eye(3),
        "repeated": np.diag([2.0, 2.0, 0.5]),
    }[name]


@pytest.mark.parametrize("name", ["general", "identity", "repeated"])
def test_the_root_has_the_derivative_of_finite_differences(name):
    cov = covariance(name)
    change = np.array([[0.3, -0.2, 0.1], [-0.2, 0.5, 0.4], [0.1, 0.4, -0.6]])
    root = jax.jit(lambda C, dC: jax.jvp(symmetric_root, (C,), (dC,)))
    tangent = root(cov, change)[1]
    ends = [np.asarray(root(cov + s * 1e-6 * change, change)[0]) for s in (1, -1)]
    np.testing.assert_allclose(tangent, (ends[0] - ends[1]) / 2e-6, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-24, 1e-10, 1.0, 1e10, 1e24])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_samples_of_a_singular_covariance_lie_in_its_range_at_every_scale(scale, dtype):
    basis = np.linalg.qr(np.random.default_rng(4).normal(size=(3, 3)))[0]
    shape = basis[:, :2] @ np.diag([1.0, 0.01]) @ basis[:, :2].T
    H = jnp.asarray((scale * shape).astype(dtype))
    task = LinearPopulation(H, jnp.zeros(3, dtype), jnp.eye(3, dtype=dtype), dtype(0.5))
    X = np.asarray(task.sample(jax.random.key(0), 99, 40).X, float).reshape(-1, 3)
    X = X / scale**0.5 @ basis
    # Variances of 3,960 draws; an eigenvalue 0 that is rounded leaves a root of eps.
    np.testing.assert_allclose(np.var(X[:, :2], axis=0), [1, 0.01], rtol=0.1)
    assert np.abs(X[:, 2]).max() < 100 * np.finfo(dtype).eps


@functools.partial(jax.jit, static_argnums=2)
def risk_and_slopes(H, Psi, num_examples):
    def risk(H, Psi):
        task = LinearPopulation(H, jnp.zeros(3), Psi, 0.5)
        drawn = {"key": jax.random.key(0), "num_prompts": 8}
        return estimate_risk(Bayes(task), task, num_examples, **drawn).mean

    return jax.value_and_grad(risk, (0, 1))(H, Psi)


@pytest.mark.parametrize(
    "num_examples", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 5))]
)
@pytest.mark.parametrize("name", ["general", "identity"])
def test_the_average_bayes_risk_is_differentiable_in_both_covariances(
    name, num_examples
):
    cov, change = covariance(name), np.eye(3) + 0.2
    slopes = risk_and_slopes(cov, cov, num_examples)[1]
    for argument in (0, 1):
        slope = np.sum(np.asarray(slopes[argument]) * change)
        moved = [[cov, cov], [cov, cov]]
        moved[0][argument], moved[1][argument] = (
            cov + 1e-5 * change,
            cov - 1e-5 * change,
        )
        ends = [float(risk_and_slopes(*pair, num_examples)[0]) for pair in moved]
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-5, rtol=1e-6)
