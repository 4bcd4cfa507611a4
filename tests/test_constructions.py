import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.constructions import (
    gd_plus_plus,
    gradient_descent,
    join_tokens,
    preconditioned_gradient_descent,
    read_prediction,
)
from tests.raising import raises


def test_weights_are_the_block_matrices_of_the_docstrings():
    stack = gradient_descent(np.array([0.5, 0.25]), d_in=2, d_out=1)
    np.testing.assert_array_equal(stack.W_K, [np.diag([1.0, 1, 0])] * 2)
    np.testing.assert_array_equal(stack.W_Q, stack.W_K)
    np.testing.assert_array_equal(
        stack.W_V, [np.diag([0, 0, -0.5]), np.diag([0, 0, -0.25])]
    )
    A = np.arange(4.0).reshape(1, 2, 2)
    stack = preconditioned_gradient_descent(A, d_out=2)
    np.testing.assert_array_equal(stack.W_Q[0, :2, :2], A[0].T)
    np.testing.assert_array_equal(stack.W_V[0], -np.diag([0.0, 0, 1, 1]))
    stack = gd_plus_plus(np.array([0.5]), np.array([0.1]), d_in=1, d_out=2)
    np.testing.assert_array_equal(stack.W_V[0], -np.diag([0.1, 0.5, 0.5]))


def test_tokens_carry_inputs_and_residuals():
    X, Y, x = np.eye(2), np.array([[1.0], [2.0]]), np.array([3.0, 4.0])
    H, h = join_tokens(X, Y, x)
    np.testing.assert_array_equal(H, [[1, 0, 1], [0, 1, 2]])
    np.testing.assert_array_equal(h, [3, 4, 0])
    H, h = join_tokens(X, Y, x, np.array([[1.0, 1.0]]))
    np.testing.assert_array_equal(H, [[1, 0, 0], [0, 1, 1]])
    np.testing.assert_array_equal(h, [3, 4, -7])
    np.testing.assert_array_equal(read_prediction(h, 2), [7])


@pytest.mark.slow
def test_step_sizes_can_be_learned():
    X, Y, x = np.eye(2), np.array([[1.0], [2.0]]), np.array([1.0, 1.0])

    @jax.jit
    def loss(etas):
        stack = gradient_descent(etas, 2)
        out = stack.apply(*join_tokens(X, Y, x), scale=1 / 2)
        return jnp.sum((read_prediction(out.h_query[-1], 2) - 3.0) ** 2)

    # with X = I every step shrinks the error 3 by 1 - eta / 2
    etas = jnp.array([0.4, 1.0])
    np.testing.assert_allclose(loss(etas), (3 * 0.8 * 0.5) ** 2, rtol=1e-14)
    gradient = jax.grad(loss)(etas)
    np.testing.assert_allclose(gradient, [-1.8, -9 * 0.64 * 0.5], rtol=1e-13)


@pytest.mark.slow
def test_dtype_follows_the_input():
    steps = jnp.ones(2, jnp.float32)
    for stack in (
        gradient_descent(steps, 2),
        gd_plus_plus(steps, steps, 2),
        preconditioned_gradient_descent(jnp.ones((1, 2, 2), jnp.float32)),
    ):
        assert {leaf.dtype for leaf in jax.tree.leaves(stack)} == {jnp.dtype("float32")}


def test_bad_input_says_what_was_expected():
    steps = np.ones(2)
    with raises("step_sizes: expected finite entries, got nan"):
        gradient_descent(np.array([1.0, np.nan]), 2)
    with raises("W_V: expected at least one layer, got L = 0"):
        gradient_descent(steps[:0], 2)
    with raises("d_in: expected a positive integer, got 0"):
        gradient_descent(steps, 0)
    with raises("d_out: expected a positive integer, got -1"):
        preconditioned_gradient_descent(np.ones((1, 2, 2)), -1)
    with raises("preconditioners: expected shape (L, d_in, d_in), got (1, 2, 3)"):
        preconditioned_gradient_descent(np.ones((1, 2, 3)))
    with raises("input_steps: expected shape (2,), got (1,)"):
        gd_plus_plus(steps, steps[:1], 2)
    with raises("Y: expected shape (2, d_out), got (3, 1)"):
        join_tokens(np.eye(2), np.ones((3, 1)), np.ones(2))
    with raises("x_query: expected shape (2,), got (3,)"):
        join_tokens(np.eye(2), np.ones((2, 1)), np.ones(3))
    with raises("W_0: expected shape (1, 2), got (2, 2)"):
        join_tokens(np.eye(2), np.ones((2, 1)), np.ones(2), np.eye(2))
    with raises("d_in: expected 0 < d_in < 3, got 3"):
        read_prediction(np.ones(3), 3)
