"""A bound as a part of an objective: differentiated through jit and step sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import bounds, constructions, noise
from icltheory import regression as reg

SOURCE = reg.LinearPopulation.isotropic(2, noise_var=0.3)
PROMPT = SOURCE.sample(jax.random.key(0), 16, 32)
H, H_QUERY = PROMPT.tokens()
N = H.shape[1]
DIMS = noise.support_dims(constructions.gradient_descent(jnp.array([0.6, 0.3]), 2))


def objective(step_sizes, weight=0.1, path=False):
    """Error of gradient descent by attention, and the bound on what it may hide."""
    stack = constructions.gradient_descent(step_sizes, 2)
    answers = jax.vmap(lambda H, q: stack.apply(H, q, scale=1 / N).h_query[-1, -1])
    error = jnp.mean((answers(H, H_QUERY) + PROMPT.y_query) ** 2)
    key = jax.random.key(1) if path else None
    steps = bounds.noisy_steps(stack, H, 8, scale=1 / N, support_dims=DIMS, key=key)
    bound = bounds.isotropic_bound(steps, 1.0)
    return error + weight * bound.value, (error, bound.value)


@pytest.mark.parametrize("path", [False, True])
def test_its_gradient_is_the_finite_difference(path):
    point = jnp.array([0.6, 0.3])
    of = jax.jit(jax.value_and_grad(lambda s: objective(s, 0.1, path), has_aux=True))
    (value, parts), slope = of(point)
    assert np.isfinite(value)
    assert parts[1] > 0.5
    plain = jax.jit(lambda s: objective(s, 0.1, path)[0])
    for i in range(2):
        h = 1e-5 * jnp.eye(2)[i]
        expected = (plain(point + h) - plain(point - h)) / 2e-5
        np.testing.assert_allclose(slope[i], expected, rtol=1e-5)
    # It is the bound's slope, not that of the error alone.
    alone = jax.grad(lambda s: objective(s, 0.0, path)[0])(point)
    assert np.abs(slope - alone).max() > 1e-3


def test_a_loop_lowers_the_objective_and_the_bound():
    of = jax.jit(jax.value_and_grad(objective, has_aux=True))
    point = jnp.array([0.6, 0.3])
    (first, (_, before)), slope = of(point)
    for _ in range(30):
        point = point - 0.02 * slope
        (value, (_, after)), slope = of(point)
    assert value < first
    assert after < before
