"""Weights that run gradient descent: von Oswald, Ahn, GD++."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory.constructions import (
    gd_plus_plus,
    gradient_descent,
    join_tokens,
    preconditioned_gradient_descent,
    read_prediction,
)
from tests import oracles

D_IN, D_OUT, N, L = 3, 2, 7, 6


def task(seed=0):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(N, D_IN)), rng.normal(size=(N, D_OUT))
    return X, Y, rng.normal(size=D_IN), rng.normal(size=(D_OUT, D_IN))


@functools.partial(jax.jit, static_argnums=3)
def apply(stack, H, h, mask):
    return stack.apply(H, h, mask, scale=1 / N)


@jax.jit
def predictions(stack, H, h, scale):
    return read_prediction(stack.apply(H, h, scale=scale).h_query, D_IN)


@pytest.mark.statement("von Oswald: Proposition 1")
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([1 / N, 0.05]))
def test_l_layers_are_l_explicit_steps_of_gradient_descent(seed, scale, measured):
    X, Y, x, W_0 = task(seed)
    etas = np.random.default_rng(seed).uniform(0, 0.5, L)
    stack = gradient_descent(etas, D_IN, D_OUT)
    steps = [eta * np.eye(D_IN) for eta in etas]
    for start in (np.zeros((D_OUT, D_IN)), W_0):
        got = predictions(stack, *join_tokens(X, Y, x, start), scale)
        path = oracles.gradient_descent(start, X, Y, steps, scale)
        measured("error", got - path @ x, below=1e-12)
        # 1e-8 is the promise; rounding leaves about 1e-15


@pytest.mark.statement("von Oswald: Proposition 1")
def test_one_layer_is_one_step_on_the_mean_loss(measured):
    X, Y, x, _ = task()
    got = predictions(
        gradient_descent(np.array([0.3]), D_IN, D_OUT), *join_tokens(X, Y, x), 1 / N
    )

    def loss(W):
        return jnp.sum((X @ W.T - Y) ** 2) / 2 / N

    W_1 = -0.3 * np.asarray(jax.jit(jax.grad(loss))(np.zeros((D_OUT, D_IN))))
    got = np.asarray(got)
    measured("error against autodiff", np.abs(got[1] - W_1 @ x).max())
    np.testing.assert_allclose(got, [np.zeros(D_OUT), W_1 @ x], atol=1e-14)


@pytest.mark.statement("von Oswald: Proposition 1")
def test_many_layers_reach_the_least_squares_solution(measured):
    X, Y, x, _ = task()
    stack = gradient_descent(np.full(2000, 0.4), D_IN, D_OUT)
    last = np.asarray(predictions(stack, *join_tokens(X, Y, x), 1 / N))[-1]
    solution = np.linalg.lstsq(X, Y)[0].T @ x
    measured("distance from least squares, 2000 layers", last - solution, below=1e-8)


@pytest.mark.statement("Ahn: Theorem 1, construction")
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_l_layers_are_l_steps_of_preconditioned_gradient_descent(seed, measured):
    X, Y, x, W_0 = task(seed)
    A = 0.2 * np.random.default_rng(seed).normal(size=(L, D_IN, D_IN))  # asymmetric
    stack = preconditioned_gradient_descent(A, D_OUT)
    got = predictions(stack, *join_tokens(X, Y, x, W_0), 1 / N)
    path = oracles.gradient_descent(W_0, X, Y, A, 1 / N)
    size = np.linalg.norm(path @ x)
    measured("relative error", np.linalg.norm(got - path @ x) / size)
    np.testing.assert_allclose(got, path @ x, rtol=1e-9, atol=1e-10)


@pytest.mark.statement("von Oswald: GD++")
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_gd_plus_plus_equals_its_loops(seed, measured):
    X, Y, x, _ = task(seed)
    eta, gamma = np.random.default_rng(seed).uniform(0, 0.3, (2, L))
    stack = gd_plus_plus(eta, gamma, D_IN, D_OUT)
    got = predictions(stack, *join_tokens(X, Y, x), 1 / N)
    expected = oracles.gd_plus_plus(X, Y, x, eta, gamma, 1 / N)
    size = np.linalg.norm(expected)
    measured("relative error", np.linalg.norm(got - expected) / size)
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.statement("von Oswald: GD++")
def test_gd_plus_plus_maps_the_spectrum_of_the_inputs(measured):
    # eigenvalues s of X^T X / N become s (1 - gamma s)^2 after one layer
    X, Y, x, _ = task()
    gamma = 0.1
    stack = gd_plus_plus(np.array([0.2]), np.array([gamma]), D_IN, D_OUT)
    moved = apply(stack, *join_tokens(X, Y, x), "demos").H
    moved = np.asarray(moved)[1, :, :D_IN]
    s = np.linalg.eigvalsh(X.T @ X / N)
    after = np.linalg.eigvalsh(moved.T @ moved / N)
    expected = np.sort(s * (1 - gamma * s) ** 2)
    measured("error of the spectrum", after - expected, below=1e-13)
    assert after.max() / after.min() < s.max() / s.min()


@pytest.mark.statement("von Oswald: Proposition 1")
@pytest.mark.parametrize("mask", ["causal", "none"])
def test_the_construction_needs_the_mask_of_the_papers(mask, measured):
    X, Y, x, _ = task()
    stack = gradient_descent(np.full(L, 0.3), D_IN, D_OUT)
    tokens = join_tokens(X, Y, x)
    right, other = (
        np.asarray(apply(stack, *tokens, m).h_query)[-1] for m in ("demos", mask)
    )
    measured(f"change, mask {mask}", np.abs(right - other).max())
    assert np.abs(right - other).max() > 1e-3
