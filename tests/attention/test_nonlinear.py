"""Attention with a kernel, and the weights that every stack shows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.attention import (
    KERNELS,
    KernelAttentionStack,
    LinearAttentionStack,
    MLPAttentionStack,
    SoftmaxAttentionStack,
    attended_keys,
    kernel_attention,
    kernel_matrix,
    kernel_weights,
)
from tests import oracles
from tests.raising import raises

L, N, n, d = 2, 4, 3, 2
RNG = np.random.default_rng(0)
W_V, H, h = RNG.normal(size=(n, n)), RNG.normal(size=(N, n)), RNG.normal(size=n)
W_K, W_Q = RNG.normal(size=(2, d, n)) / 2


def cubic(x, z):
    return (1 + x @ z) ** 3


def by_loops(kernel, mask):
    """The layer from its double sum."""
    value = oracles.KERNELS.get(kernel, cubic)
    tokens, allowed = np.vstack([H, h]), np.asarray(attended_keys(mask, N))
    out = tokens.copy()
    for i in range(N + 1):
        for j in range(N + 1):
            if allowed[i, j]:
                out[i] += (
                    0.5 * value(W_Q @ tokens[i], W_K @ tokens[j]) * W_V @ tokens[j]
                )
    return out


@pytest.mark.parametrize("kernel", [*KERNELS, cubic])
@pytest.mark.parametrize("mask", ["demos", "causal", "none"])
def test_kernel_attention_is_the_double_sum(kernel, mask):
    out = kernel_attention(W_V, W_K, W_Q, H, h, kernel=kernel, mask=mask, scale=0.5)
    got = np.vstack([out.H, out.h_query])
    np.testing.assert_allclose(got, by_loops(kernel, mask), rtol=1e-12)


@functools.partial(jax.jit, static_argnums=(1, 4))
def weights_of(stack, index, H, h, mask="demos"):
    return stack.weights(index, H, h, mask)


def test_a_stack_is_its_layers_and_shows_their_weights():
    V = np.stack([W_V, W_V.T])
    K, Q = np.stack([W_K, W_Q]), np.stack([W_Q, W_K])
    stack = KernelAttentionStack(V, K, Q, "rbf")
    out = jax.jit(lambda stack: stack.apply(H, h, "causal", scale=0.5))(stack)
    tokens = H, h
    for depth in range(L):
        weights = weights_of(stack, depth, *tokens, "causal")
        expected = kernel_weights(
            K[depth], Q[depth], *tokens, kernel="rbf", mask="causal"
        )
        np.testing.assert_allclose(weights, expected, rtol=1e-14)
        every = np.vstack(tokens)
        moved = every + 0.5 * np.asarray(weights) @ every @ V[depth].T
        tokens = moved[:-1], moved[-1]
        got = np.asarray(out.H)[depth + 1], np.asarray(out.h_query)[depth + 1]
        np.testing.assert_allclose(got[0], tokens[0], rtol=1e-12)
        np.testing.assert_allclose(got[1], tokens[1], rtol=1e-12)


def test_weights_of_every_stack_make_its_layer():
    W = RNG.normal(size=(3, L, n, n)) / 2
    linear, softmax = LinearAttentionStack(*W), SoftmaxAttentionStack(*W, d_scale=2)
    every = np.vstack([H, h])
    for stack in (linear, softmax):
        weights = weights_of(stack, 1, H, h)
        out = stack.layer(1, H, h, "demos")
        moved = every + np.asarray(weights) @ every @ W[0, 1].T
        np.testing.assert_allclose(np.vstack(out), np.vstack([moved]), rtol=1e-12)
    assert np.all(np.sum(weights_of(softmax, 0, H, h), axis=1) < 1)
    mlp = MLPAttentionStack(*W, RNG.normal(size=(L, 5, n)), RNG.normal(size=(L, n, 5)))
    np.testing.assert_array_equal(weights_of(mlp, 0, H, h), weights_of(linear, 0, H, h))


@pytest.mark.parametrize("mask", ["demos", "causal"])
def test_a_masked_kernel_that_overflows_spoils_no_derivative(mask):
    def moved(h):
        one = np.eye(2)
        out = kernel_attention(one, one, one, keys, h, kernel="exp", mask=mask)
        return out.h_query.sum()

    h, keys = np.array([30.0, 0.0]), 1e-2 * H[:, :2]
    assert h @ h > np.log(np.finfo(np.float64).max)
    weights = np.exp(keys @ h)
    expected = 1 + (weights * keys.sum(axis=1)) @ keys
    np.testing.assert_allclose(jax.jit(jax.grad(moved))(h), expected, rtol=1e-12)
    nobody = kernel_attention(W_V, W_K, W_Q, H[:0], H[0], kernel="exp", mask=mask)
    np.testing.assert_array_equal(nobody.h_query, H[0])


def test_impossible_inputs_are_refused():
    one = W_V[None], W_K[None], W_Q[None]
    stack = LinearAttentionStack(*jnp.ones((3, 1, n, n)))
    for run, message in (
        (lambda: kernel_matrix("cosine", H, H), "kernel: expected one of 'linear'"),
        (lambda: kernel_matrix("rbf", H, H[:, :2]), "Z: expected shape (B, 3)"),
        (lambda: KernelAttentionStack(*one, "cosine"), "kernel: expected one of"),
        (lambda: KernelAttentionStack(*one[:2], one[0]), "W_Q: expected shape"),
        (lambda: stack.weights(1, H, h), "index: expected 0 <= index <= 0, got 1"),
        (
            lambda: kernel_attention(W_V, W_K, W_Q, H, h, mask="past"),
            "mask: expected one of",
        ),
    ):
        with raises(message):
            run()
