"""One example and one dimension, where the divisors that must not be 0 are 1."""

import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression import (
    AttentionWeights,
    LinearPopulation,
    LinearStep,
    flow_bounds,
    predictors,
    risk,
)
from icltheory.regression.position import label_weights


@pytest.mark.parametrize("dim", [1, 2])
def test_least_squares_without_noise_learns_one_dimension_an_example(dim):
    task = LinearPopulation.isotropic(dim, noise_var=0.0)
    found = [float(risk(predictors.LeastSquares(), task, k)) for k in range(dim + 3)]
    np.testing.assert_allclose(found, [max(dim - k, 0) for k in range(dim + 3)])


def test_risks_of_one_example():
    """E |H M x x' - w|^2 of one example: d + 1 + 1 from x x' x x', and the noise."""
    task = LinearPopulation.isotropic(3, 0.25)
    expected = 3 * (3 + 1 + 0.25) + 0.25
    assert float(risk(predictors.Averaging(), task, 1)) == pytest.approx(expected)
    found = risk(predictors.LinearStep(jnp.eye(3)), task, 1)
    assert float(found) == pytest.approx(expected)


def test_predictions_of_one_example():
    x, y, query = jnp.array([[1.0, -2.0]]), jnp.array([3.0]), jnp.array([0.5, 2.0])
    weights = label_weights(jnp.array([0.3]), x, query)
    np.testing.assert_allclose(weights, [0.3 * -3.5], rtol=1e-12)
    found = LinearStep(0.3 * jnp.eye(2)).predict(x, y, query)
    np.testing.assert_allclose(found, 3 * 0.3 * -3.5, rtol=1e-12)
    # Half of the square of 3 - 2 w, and 4 |w|: the slope 4 w - 6 + 4 is 0 at 1/2.
    fit = predictors.Lasso(4.0).fit(jnp.array([[2.0]]), y)
    np.testing.assert_allclose(fit.w, [0.5], rtol=1e-12)


def test_constants_of_convergence_in_one_dimension():
    """With a covariance of 1: K_1 = 2 - s^2 g, and u_min^2 = s^2 K_1 / 2, g = 3."""
    start, one = AttentionWeights(0.5, 0.5 * jnp.eye(1)), LinearPopulation.isotropic(1)
    found = flow_bounds(start, one, 1, jnp.zeros(1))
    K_1 = 2 - 0.25 * 3
    np.testing.assert_allclose(found.scale_floor**2, 0.25 * K_1 / 2, rtol=1e-12)
    np.testing.assert_allclose(found.rate, 2 * 0.25 * K_1 * 3, rtol=1e-12)
