"""Lemma 1 and Remark 1: one layer of linear attention is one low-rank update."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory.attention import linear_attention
from icltheory.trajectory import implicit_update
from tests import oracles
from tests.oracles import truncate


def layer(N, n, seed=0, rho=0.5):
    W_V, W_K, W_Q, H, h = oracles.random_problem(1, N, n, seed, rho)
    return W_V[0], W_K[0], W_Q[0], H, h


@pytest.mark.statement("Yao: Lemma 1")
@settings(max_examples=20, deadline=None)
@given(size=st.sampled_from([(3, 5), (7, 4)]), seed=st.integers(0, 2**32))
def test_lemma_1_the_layer_adds_the_implicit_update(size, seed, measured):
    *W, H, h = layer(*size, seed)
    delta_W = implicit_update(*W, H, scale=0.3)
    np.testing.assert_allclose(delta_W, oracles.implicit_update(*W, H, 0.3), atol=1e-14)
    tokens = oracles.linear_layer(*W, np.vstack([H, h]), "demos", 0.3)
    error = np.linalg.norm(h + delta_W @ h - tokens[-1]) / np.linalg.norm(tokens[-1])
    measured("relative error", error, below=1e-13)


@pytest.mark.statement("Yao: Eq. (3)")
@pytest.mark.parametrize("mask", ["demos", "causal", "none"])
def test_eq_3_linear_attention_is_the_double_sum(mask, measured):
    for seed, (N, scale) in itertools.product(range(5), ((7, 1 / 7), (1, 1.0))):
        *W, H, h = layer(N, 4, seed)
        out = linear_attention(*W, H, h, mask=mask, scale=scale)
        expected = oracles.linear_layer(*W, np.vstack([H, h]), mask, scale)
        measured("error", np.vstack([out.H, out.h_query]) - expected, below=1e-14)


@pytest.mark.statement("Yao: Lemma 1")
def test_lemma_1_holds_for_the_causal_mask_and_fails_without_a_mask(measured):
    *W, H, h = layer(5, 4)
    moved = h + np.asarray(implicit_update(*W, H)) @ h
    for mask in ("demos", "causal"):
        out = linear_attention(*W, H, h, mask=mask).h_query
        np.testing.assert_allclose(out, moved, atol=1e-14)
    out = np.asarray(linear_attention(*W, H, h, mask="none").h_query)
    measured("change without a mask", np.linalg.norm(out - moved))
    assert np.abs(out - moved).max() > 1e-2


@pytest.mark.statement("Yao: Lemma 1", "Yao: Eqs. (5)-(8)")
def test_lemma_1_dual_form_is_the_gradient_of_a_linear_loss(measured):
    W_V, W_K, W_Q, H, _ = layer(5, 4)

    def loss(W):
        return -jnp.einsum("ni,ij,nj->", H @ W_V.T, W, H @ (W_Q.T @ W_K).T)

    update, slope = (
        np.asarray(implicit_update(W_V, W_K, W_Q, H)),
        jax.jit(jax.grad(loss)),
    )
    for W in (np.zeros((4, 4)), np.ones((4, 4))):  # the same gradient everywhere
        measured("error against autodiff", -np.asarray(slope(W)) - update, below=1e-14)


@pytest.mark.statement("Yao: Remark 1 (rank)")
def test_remark_1_rank_is_at_most_each_of_three_ranks(measured):
    W_V, W_K, W_Q, H, _ = layer(3, 6)

    def rank(matrix):
        return np.linalg.matrix_rank(matrix, tol=1e-10)

    cases = [
        (W_V, W_K, W_Q, H, 3),  # rank H = N = 3 decides
        (W_V, W_K, W_Q, np.tile(H[:1], (5, 1)), 1),  # equal demonstrations
        (truncate(W_V, 2), W_K, W_Q, H, 2),
        (W_V, truncate(W_K, 1), W_Q, H, 1),
        (W_V, W_K, truncate(W_Q, 2), H, 2),
    ]
    for V, K, Q, tokens, expected in cases:
        bound = min(rank(tokens @ V.T), rank(tokens @ K.T), rank(Q))
        assert bound == expected
        found = rank(implicit_update(V, K, Q, tokens))  # met, generically
        measured("rank less its bound", found - bound)
        assert found == expected


@pytest.mark.statement("Yao: Lemma 1")
def test_no_demonstrations_no_update():
    *W, H, _ = layer(0, 4)
    np.testing.assert_array_equal(implicit_update(*W, H), np.zeros((4, 4)))
