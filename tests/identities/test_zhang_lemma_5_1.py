"""Lemma 5.1: a GD-beta is a linear transformer block; von Oswald's construction."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory import constructions
from icltheory import regression as reg
from icltheory.regression import LinearPopulation
from tests import oracles
from tests.oracles_ltb import random_population, random_prompts


def weights_of(model):
    """The matrices as NumPy arrays, in the order of the oracle."""
    return [np.asarray(W) for W in jax.tree.leaves(model)]


@jax.jit
def predict(model, X, y, x):
    return jax.vmap(model.predict)(X, y, x) if X.ndim == 3 else model.predict(X, y, x)


def token_matrices(X, y, x):
    """Tokens as rows, [x_i, y_i] and [x, 0]."""
    E = np.zeros((X.shape[0], X.shape[1] + 1, X.shape[2] + 1))
    E[:, :-1, :-1], E[:, :-1, -1], E[:, -1, :-1] = X, y, x
    return E


@jax.jit
def convert(model, X, y, x, E):
    """Minimal and padded blocks, what they predict, and the way back."""
    blocks = model.to_ltb(), model.to_ltb(key_dim=7, value_dim=2, hidden_dim=3)
    predicted = [
        jnp.stack([predict(b, X, y, x), jax.vmap(b.predict_tokens)(E)]) for b in blocks
    ]
    back = [reg.GDBeta.of(b) for b in blocks]
    return blocks, predicted, back


@pytest.mark.statement("Zhang: Lemma 5.1")
@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.sampled_from([(1, 3), (2, 12), (5, 4)]))
def test_a_gd_beta_is_its_block_on_every_prompt(seed, size, measured):
    d, M = size
    rng = np.random.default_rng(seed)
    beta, Gamma = 3 * rng.normal(size=d), rng.normal(size=(d, d))
    prompts = random_prompts(rng, random_population(rng, d), M, 40)
    expected = oracles.gradient_step_predictions(beta, Gamma, *prompts)
    scale = 1 + np.abs(expected)
    blocks, predictions, back = convert(
        reg.GDBeta(beta, Gamma), *prompts, token_matrices(*prompts)
    )
    for block, predicted, model in zip(blocks, predictions, back, strict=True):
        by_oracle = oracles.block_predictions(weights_of(block), *prompts)
        measured("error of its weights", np.max(np.abs(by_oracle - expected) / scale))
        assert np.all(np.abs(by_oracle - expected) < 1e-12 * scale)
        error = np.max(np.abs(np.asarray(predicted) - expected) / scale)
        measured("error of its predictions", error, below=1e-12)
        np.testing.assert_array_equal(model.beta, beta)
        np.testing.assert_array_equal(model.Gamma, Gamma)


@pytest.mark.statement("Zhang: Lemma 5.1")
def test_the_weights_are_those_of_the_lemma_and_hold_the_transpose():
    Gamma = np.array([[1.0, 2.0], [3.0, 4.0]])
    block = reg.GDBeta(np.array([5.0, 6.0]), Gamma).to_ltb()
    shapes = [W.shape for W in jax.tree.leaves(block)]
    assert shapes == [(2, 3), (2, 3), (1, 3), (1, 3), (1, 3), (1, 3)]
    W_K, W_Q, W_P, W_V, W_1, W_2 = weights_of(block)
    np.testing.assert_array_equal(W_K.T @ W_Q, [[1, 3, 0], [2, 4, 0], [0, 0, 0]])
    np.testing.assert_array_equal(W_P.T @ W_V, [[0, 0, 0], [0, 0, 0], [-5, -6, 1]])
    np.testing.assert_array_equal(W_2.T @ W_1, [[0, 0, 0], [0, 0, 0], [5, 6, 1]])
    wide = reg.GDBeta(np.array([5.0, 6.0]), Gamma).to_ltb(
        key_dim=5, value_dim=4, hidden_dim=3
    )
    shapes = [W.shape for W in jax.tree.leaves(wide)]
    assert shapes == [(5, 3), (5, 3), (4, 3), (4, 3), (3, 3), (3, 3)]
    for narrow, padded in zip(weights_of(block), weights_of(wide), strict=True):
        np.testing.assert_array_equal(padded[: len(narrow)], narrow)
        assert not np.any(padded[len(narrow) :])


@pytest.mark.statement("Zhang: Lemma 5.1")
def test_a_gd_beta_and_its_block_have_one_risk(measured):
    @jax.jit
    @jax.vmap
    def risks(beta, Gamma, H, mean, Psi, noise_var):
        problem, model = (
            LinearPopulation(H, mean, Psi, noise_var),
            reg.GDBeta(beta, Gamma),
        )
        block = model.to_ltb(key_dim=5)
        return jnp.stack([reg.risk(m, problem, 7) for m in (model, block)])

    rng = np.random.default_rng(51)
    cases = [
        (2 * rng.normal(size=3), rng.normal(size=(3, 3)), *random_population(rng, 3))
        for _ in range(50)
    ]
    found = np.asarray(risks(*(np.stack(a) for a in zip(*cases, strict=True))))
    measured("relative difference", found[:, 1] / found[:, 0] - 1, below=1e-13)


# --- von Oswald's construction


@pytest.mark.statement("von Oswald: Proposition 1, one layer")
@pytest.mark.parametrize("d", [1, 3])
def test_attention_makes_one_step_from_a_start_that_the_query_carries(d, measured):
    rng = np.random.default_rng([52, d])
    start, eta = rng.normal(size=d), 0.7
    layer = reg.LSA.gradient_step(start, eta)
    prompts = random_prompts(rng, random_population(rng, d), 6, 20)
    X, y, x = prompts
    E = token_matrices(*prompts)
    E[:, -1, -1] = -x @ start
    expected = oracles.gradient_step_predictions(start, eta * np.eye(d), *prompts)
    # the whole layer by the oracle, token by token: e_j -> (x_j, y_j - dW x_j)
    W_K, W_Q, W_P, W_V = weights_of(layer)
    # started at -W_0 x the query ends at minus the prediction
    for k in range(20):
        moved = oracles.linear_layer(W_P.T @ W_V, W_K, W_Q, E[k], "demos", 1 / 6)
        np.testing.assert_array_equal(moved[:, :d], E[k, :, :d])
        residuals = X[k] @ start - y[k]
        dW = -eta / 6 * residuals @ X[k]
        error = np.abs(moved[:-1, d] - (y[k] - X[k] @ dW)).max()
        measured("error of the moved labels", error)
        assert error < 1e-14 * (1 + np.abs(y[k]).max())
        last = -moved[-1, d]
        measured("error of minus the last entry", last - expected[k], below=2e-14)
        np.testing.assert_allclose(last, x[k] @ (start + dW), atol=2e-14)
    # on prompts whose query carries 0 the layer gives minus the change of the step
    change = predict(layer, *prompts)
    np.testing.assert_allclose(x @ start - change, expected, atol=2e-14)


@pytest.mark.statement("von Oswald: Proposition 1, one layer")
@pytest.mark.slow
def test_it_is_one_layer_of_the_gradient_descent_of_the_constructions(measured):
    # there the labels carry y_i - <w_0, x_i> and the values do not know the start
    rng = np.random.default_rng(53)
    X, y, x, start = (rng.normal(size=s) for s in ((6, 3), 6, 3, 3))
    stack = constructions.gradient_descent(np.array([0.7]), d_in=3)
    tokens = constructions.join_tokens(X, y[:, None], x, start[None])
    out = jax.jit(lambda stack, *tokens: stack.apply(*tokens, scale=1 / 6))
    last = np.asarray(out(stack, *tokens).h_query)[-1]
    by_stack = np.asarray(constructions.read_prediction(last, 3))[0]
    from_zero = reg.LSA.gradient_step(np.zeros(3), 0.7)
    W_V, W_K, W_Q = (np.asarray(W)[0] for W in jax.tree.leaves(stack))
    for name, W in (("W_K", W_K), ("W_Q", W_Q)):
        padded = np.vstack([getattr(from_zero, name), np.zeros(4)])
        np.testing.assert_array_equal(padded, W)
    values = np.asarray(from_zero.W_P).T @ np.asarray(from_zero.W_V)
    np.testing.assert_array_equal(values, W_V)
    change = float(predict(reg.LSA.gradient_step(start, 0.7), X, y, x))
    residual_change = float(predict(from_zero, X, y - X @ start, x))
    measured("difference", by_stack - (x @ start - change), below=1e-14)
    np.testing.assert_allclose(x @ start - residual_change, by_stack, atol=1e-14)


@pytest.mark.statement("Zhang: Lemma 5.1")
def test_no_lsa_but_an_ltb_holds_the_start_where_the_query_carries_nothing():
    # without examples that say anything the block predicts <beta, x>, attention 0
    rng = np.random.default_rng(54)
    beta, x = rng.normal(size=(2, 3))
    X, y = np.zeros((4, 3)), np.zeros(4)
    block = jax.jit(lambda model: model.to_ltb())(reg.GDBeta(beta, np.eye(3)))
    np.testing.assert_allclose(predict(block, X, y, x), beta @ x, rtol=1e-14)
    attention = reg.LSA(block.W_K, block.W_Q, block.W_P, block.W_V)
    assert predict(attention, X, y, x) == 0
