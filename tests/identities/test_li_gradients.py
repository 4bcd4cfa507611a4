"""The gradients on Li et al.'s backup slides, and neurons that are active at the start.

The oracle differentiates the explicit loss, written here as loops over the sums.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.patterns import (
    PatternTransformer,
    activation_shares,
    loss_gradients,
)
from tests.patterns import drawn, oracles
from tests.patterns.compiled import pattern_task, sample

NAMES = ("W_Q", "W_K", "W_V", "W_O")
B, LENGTH = 5, 4


@pytest.fixture(scope="module")
def case():
    """Weights of which none is symmetric, with prompts of zF below and above 1."""
    task = drawn.pattern_task(3, 2, 2.0, 2)
    params = drawn.pattern_params(PatternTransformer(4), task, size=0.6)
    params["a"] = -20 * params["a"]
    prompt = drawn.pattern_prompt(task, B, LENGTH)
    return params, prompt


def loss(weights, a, P, P_query, z, query_is_key):
    """Mean hinge loss, token by token and neuron by neuron."""
    total = 0.0
    for n in range(B):
        tokens = [P[n, s] for s in range(LENGTH)]
        tokens += [P_query[n]] if query_is_key else []
        powers = [
            jnp.exp((weights["W_K"] @ p) @ (weights["W_Q"] @ P_query[n]))
            for p in tokens
        ]
        pooled = sum(e * p for e, p in zip(powers, tokens, strict=True)) / sum(powers)
        value = weights["W_V"] @ pooled
        F = sum(a[i] * jnp.maximum(weights["W_O"][i] @ value, 0) for i in range(len(a)))
        total += jnp.maximum(0, 1 - z[n] * F) / B
    return total


def differentiated(case, query_is_key):
    params, prompt = case
    weights = {name: params[name] for name in NAMES}
    gradient = jax.jit(jax.grad(loss), static_argnums=5)
    tokens = prompt.P, prompt.P_query, prompt.z
    return gradient(weights, params["a"], *tokens, query_is_key)


@pytest.mark.statement(
    "Li ICL: Backup slides, gradients of W_Q, W_V, W_O",
    "Li ICL: Backup slides, gradient of W_K",
)
@pytest.mark.parametrize(
    "query_is_key", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_four_gradients_are_those_of_the_loss(case, query_is_key, measured):
    wanted = differentiated(case, query_is_key)
    found = loss_gradients(*case, query_is_key=query_is_key)
    for name in NAMES:
        scale = np.abs(wanted[name]).max()
        assert scale > 1e-3
        error = np.abs(found[name] - wanted[name]).max() / scale
        measured(f"relative error of {name}", error, below=1e-12)


@pytest.mark.statement("Li ICL: Backup slides, gradients of W_Q, W_V, W_O")
def test_some_prompts_have_no_loss_and_some_do(case):
    params, prompt = case
    P, P_query, z = map(np.asarray, (prompt.P, prompt.P_query, prompt.z))
    F = [oracles.one_layer(params, P[n], P_query[n])[0] for n in range(B)]
    lost = z * np.array(F) < 1
    assert 0 < lost.sum() < B


@pytest.mark.statement("Li ICL: Backup slides, gradient of W_K")
def test_printed_gradient_of_the_keys_has_a_transpose_too_many(case, measured):
    """On prompts with a loss the three others are right; equal for symmetric W_Q."""
    params, prompt = case
    small = params | {"a": 0.01 * params["a"]}  # zF < 1 on every prompt
    given = (small, prompt)
    wanted = differentiated(given, True)
    printed = loss_gradients(*given, form="printed", query_is_key=True)
    for name in ("W_Q", "W_V", "W_O"):
        np.testing.assert_allclose(printed[name], wanted[name], atol=1e-14)
    scale = np.linalg.norm(wanted["W_K"])
    off = np.linalg.norm(printed["W_K"] - wanted["W_K"]) / scale
    measured("relative error of the printed dW_K", off)
    assert off > 0.5
    symmetric = small | {"W_Q": small["W_Q"] + small["W_Q"].T}
    found, right = (
        loss_gradients(symmetric, prompt, form=form)["W_K"]
        for form in ("printed", "correct")
    )
    np.testing.assert_allclose(found, right, atol=1e-15)


@pytest.mark.statement("Li ICL: Backup slides, l + 1 keys")
def test_slides_take_the_query_as_a_key_and_equation_7_does_not(case, measured):
    params, prompt = case
    P, P_query = prompt.P, prompt.P_query
    off = [
        oracles.one_layer(params, np.vstack([P[n], q]), q)[0]
        - oracles.one_layer(params, np.asarray(P[n]), q)[0]
        for n, q in enumerate(np.asarray(P_query))
    ]
    measured("difference of the outputs", np.abs(off).max())
    assert np.abs(off).max() > 1e-3
    two = (loss_gradients(*case, query_is_key=key)["W_V"] for key in (False, True))
    assert np.abs(np.subtract(*two)).max() > 1e-3


@pytest.mark.statement("Li ICL: Backup slides, lucky neurons")
def test_active_shares_prompt_by_prompt(case):
    task = drawn.pattern_task(3, 2, 2.0, 2)
    params = case[0]
    prompt = drawn.pattern_prompt(task, 40, LENGTH)
    shares = np.asarray(activation_shares(params, prompt))
    P, P_query, z = map(np.asarray, (prompt.P, prompt.P_query, prompt.z))
    for i, a in enumerate(np.asarray(params["a"])):
        hits = []
        for n in np.flatnonzero(z == np.sign(a)):
            attn = oracles.one_layer(params, P[n], P_query[n])[1]
            value = np.asarray(params["W_V"]) @ (attn @ P[n])
            hits.append(np.asarray(params["W_O"])[i] @ value >= 0)
        np.testing.assert_allclose(shares[i], np.mean(hits), rtol=1e-12)


@pytest.mark.statement("Li ICL: Backup slides, lucky neurons")
def test_few_neurons_are_active_on_their_sign_at_the_start(measured):
    """64 neurons of twelve starts: the slides say a constant share of them."""
    task, model = pattern_task(6, 24, 2.0), PatternTransformer(64)
    prompt = sample(task, jax.random.key(1), 20, 400)

    @jax.jit
    @jax.vmap
    def counts(key):
        shares = activation_shares(model.init(task, key=key), prompt)
        return jnp.mean(shares > 0.99)

    share = np.asarray(counts(jax.random.split(jax.random.key(0), 12)))
    measured("share of neurons, mean of 12 starts", share.mean())
    measured("share of neurons, least", share.min())
    measured("share of neurons, most", share.max())
    assert 0.01 < share.mean() < 0.12
