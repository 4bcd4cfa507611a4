"""Roots of covariances and what is differentiated through them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression import bayes
from icltheory.regression._linalg import symmetric_root
from icltheory.regression.tasks import LinearRegression


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


@functools.partial(jax.jit, static_argnums=2)
def risk_and_slopes(H, Psi, num_examples):
    def risk(H, Psi):
        task = LinearRegression(H, jnp.zeros(3), Psi, 0.5)
        return bayes.average_risk(task, num_examples, jax.random.key(0), 8).mean

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
