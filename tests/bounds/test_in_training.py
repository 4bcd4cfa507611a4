"""A bound as a part of an objective: differentiated through jit and step sizes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import bounds, constructions, noise
from icltheory import regression as reg
from tests.derivatives import slope_error

N = 16


@functools.cache
def given():
    """Prompts, their tokens, and the dimension of each step's noise."""
    source = reg.LinearPopulation.isotropic(2, noise_var=0.3)
    prompt = source.sample(jax.random.key(0), N, 32)
    stack = constructions.gradient_descent(jnp.array([0.6, 0.3]), 2)
    return prompt, prompt.tokens(), noise.support_dims(stack)


def objective(step_sizes, weight=0.1, path=False):
    """Error of gradient descent by attention, and the bound on what it may hide."""
    prompt, (H, H_query), dims = given()
    stack = constructions.gradient_descent(step_sizes, 2)
    answers = jax.vmap(lambda H, q: stack.apply(H, q, scale=1 / N).h_query[-1, -1])
    error = jnp.mean((answers(H, H_query) + prompt.y_query) ** 2)
    key = jax.random.key(1) if path else None
    steps = bounds.noisy_steps(stack, H, 8, scale=1 / N, support_dims=dims, key=key)
    bound = bounds.isotropic_bound(steps, 1.0)
    return error + weight * bound.value, (error, bound.value)


@pytest.mark.parametrize("path", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_its_gradient_is_the_finite_difference(path):
    point = jnp.array([0.6, 0.3])
    assert objective(point, 0.1, path)[1][1] > 0.5

    def plain(s, weight=0.1):
        return objective(s, weight, path)[0]

    for axis in np.eye(2):
        assert abs(slope_error(plain, point, step=1e-5, towards=(axis,))) < 1e-5
    # It is the bound's slope, not that of the error alone.
    slope, alone = (jax.grad(plain)(point, weight) for weight in (0.1, 0.0))
    assert np.abs(slope - alone).max() > 1e-3
