"""Roots of covariances and what is differentiated through them."""

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
    _, tangent = jax.jvp(symmetric_root, (jnp.asarray(cov),), (jnp.asarray(change),))
    ends = [symmetric_root(jnp.asarray(cov + s * 1e-6 * change)) for s in (1, -1)]
    np.testing.assert_allclose(tangent, (ends[0] - ends[1]) / 2e-6, atol=1e-8)


@pytest.mark.parametrize("num_examples", [2, 3, 5])
@pytest.mark.parametrize("name", ["general", "identity"])
def test_the_average_bayes_risk_is_differentiable_in_both_covariances(
    name, num_examples
):
    cov = jnp.asarray(covariance(name))

    def risk(H, Psi):
        task = LinearRegression(H, jnp.zeros(3), Psi, 0.5)
        return bayes.average_risk(task, num_examples, jax.random.key(0), 8).mean

    change = jnp.eye(3) + 0.2
    for argument in (0, 1):
        slope = jnp.sum(jax.grad(risk, argument)(cov, cov) * change)
        moved = [[cov, cov], [cov, cov]]
        moved[0][argument], moved[1][argument] = (
            cov + 1e-5 * change,
            cov - 1e-5 * change,
        )
        # Where H is diagonal and known, its root is the diagonal: trace both alike.
        ends = [jax.jit(risk)(*pair) for pair in moved]
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-5, rtol=1e-6)
