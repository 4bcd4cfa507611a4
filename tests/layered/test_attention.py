"""Reading attention from every kind of layered model."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import attention, layered
from icltheory.bridge import Architecture, Decoder, LanguageModel, Rotary, Tokens
from icltheory.models import GPT2, LayeredGPT2
from tests.bridge.tiers import quick
from tests.raising import raises

L, N, n = 2, 4, 3
W = np.random.default_rng(0).normal(size=(3, L, n, n)) / 2
H, QUERY = np.random.default_rng(1).normal(size=(N, n)), np.ones(n)


def test_weights_of_a_stack_and_its_values_make_the_layer():
    stack = attention.SoftmaxAttentionStack(*W, d_scale=2)
    model = layered.LayeredStack.of(stack, mask="causal", scale=0.5)
    assert isinstance(model, layered.AttentionReadable)
    patterns, states = jax.jit(
        lambda stack: (
            layered.attention_patterns(model, stack, (H, QUERY)),
            layered.all_hidden(model, stack, (H, QUERY)),
        )
    )(stack)
    for layer, pattern in enumerate(patterns):
        assert pattern.shape == (1, N + 1, N + 1)
        before, after = (np.vstack(s) for s in states[layer : layer + 2])
        W_O, W_V = map(np.asarray, model.ov_factors(layer, stack))
        moved = 0.5 * np.asarray(pattern[0]) @ before @ (W_O[0] @ W_V[0]).T
        np.testing.assert_allclose(before + moved, after, rtol=1e-12)


def heads_times_values(pattern, factors, x):
    """What the heads write at every token, from weights, factors and inputs."""
    return np.einsum(
        "bhts,hnd,hdm,bsm->btn", *map(np.asarray, (pattern, *factors)), np.asarray(x)
    )


def test_gpt2_shows_what_its_heads_write():
    module = GPT2(
        dim=2,
        num_positions=8,
        width=8,
        num_layers=2,
        num_heads=2,
        mlp=False,
        dtype=jnp.float64,
        param_dtype=jnp.float64,
    )
    X = jnp.asarray(np.random.default_rng(1).normal(size=(3, 4, 2)))
    shapes = jax.eval_shape(module.init, jax.random.key(0), X, X[..., 0])
    assert set(shapes) == {"params"}
    params = normal(shapes["params"])
    model = LayeredGPT2(module)
    assert isinstance(model, layered.AttentionReadable)

    @functools.partial(jax.jit, static_argnums=0)
    def run(model, params):
        hidden = layered.hidden_before(model, params, (X, X[..., 0]), 1)
        after = model.block(1, params, hidden).tokens
        pattern = model.attention_weights(1, params, hidden)
        return pattern, model.ov_factors(1, params), hidden.tokens, after

    found = jax.tree.map(np.asarray, run(model, params))
    pattern, factors, before, after = found
    assert pattern.shape == (3, 2, 8, 8)
    np.testing.assert_allclose(pattern.sum(axis=-1), 1, rtol=1e-12)
    assert not np.triu(pattern, 1).any()
    # Layer norm divides by the deviation; the rest of it is in the factors.
    size = np.sqrt(before.var(axis=-1, keepdims=True) + 1e-5)
    written = heads_times_values(pattern, factors, before / size)
    np.testing.assert_allclose(before + written, after, atol=1e-12)


FAMILIES = {
    "gpt2": {"norm": "layer", "num_kv_heads": 4},
    "llama": {"norm": "rms", "num_kv_heads": 2, "rotary": True},
    "gemma": {"norm": "rms_plus_one", "num_kv_heads": 1, "rotary": True},
}


def decoder(norm, num_kv_heads, rotary=False):
    return Decoder(
        Architecture(
            family="gpt2",
            vocab_size=11,
            width=8,
            num_layers=2,
            num_heads=4,
            num_kv_heads=num_kv_heads,
            head_dim=2,
            mlp_width=8,
            max_positions=16,
            norm=norm,
            parallel=True,
            shared_norm=True,
            **({"rotary": Rotary(frequencies=(1.0,))} if rotary else {}),
        )
    )


def drawn(model):
    """Parameters of the model's shapes; only biases, which no head reads, are zero."""
    return normal(jax.eval_shape(model.init, jax.random.key(0)))


def normal(shapes):
    rng = np.random.default_rng(2)

    def draw(path, s):
        size = 0.3 * (path[-1].key != "bias")
        return jnp.asarray(size * rng.normal(size=s.shape).astype(s.dtype))

    return jax.tree.map_with_path(draw, shapes)


def read(model, params, mask):
    """Patterns and factors of layer 1, alone and as a language model, and its states.

    With an MLP that writes nothing, the block adds what its heads write.
    """
    layer = params["layers"][1]
    layer["mlp"] = jax.tree.map(lambda W: jnp.zeros(W.shape, W.dtype), layer["mlp"])
    ids = jnp.asarray(np.random.default_rng(1).integers(0, 11, size=(2, 6)))

    @jax.jit
    def run(params):
        hidden = layered.hidden_before(model, params, Tokens(ids, mask), 1)
        after, shown = model.block(1, params, hidden).h, []
        for one in (model, LanguageModel(model, params)):
            assert isinstance(one, layered.AttentionReadable)
            pattern = one.attention_weights(1, params, hidden)
            shown.append((pattern, one.ov_factors(1, params)))
        return shown, hidden.h, after

    return jax.tree.map(np.asarray, run(params))


@pytest.mark.parametrize("family", quick(["llama"], FAMILIES))
def test_decoders_show_what_their_heads_write(family):
    model = decoder(**FAMILIES[family])
    there = np.arange(6)[None] < np.array([[6], [4]])
    (shown, again), before, after = read(model, drawn(model), jnp.asarray(there))
    assert shown[0].shape == (2, 4, 6, 6)
    assert not shown[0][1, :, :4, 4:].any()
    centred = before - before.mean(-1, keepdims=True) if family == "gpt2" else before
    size = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + model.arch.norm_eps)
    moved = before + heads_times_values(*shown, before / size)
    np.testing.assert_allclose(moved[there], after[there], atol=1e-6)
    for got, expected in zip(*map(jax.tree.leaves, (again, shown)), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-7)


@pytest.mark.parametrize("norm", quick(["rms"], ["rms", "layer"]))
def test_norms_behind_attention_are_in_the_factors_of_its_output(norm):
    """As in OLMo 2: nothing in front, a norm behind. Its size is left out."""
    change = {"shared_norm": False, "pre_norm": False, "post_norm": True}
    model = Decoder(dataclasses.replace(decoder(norm, 2, True).arch, **change))
    params = drawn(model)
    scale = np.asarray(params["layers"][1]["post_norm_1"]["scale"])
    (shown, _), before, after = read(model, params, jnp.ones((2, 6), bool))
    written = heads_times_values(*shown, before)
    size = ((written / scale) ** 2).mean(axis=-1, keepdims=True) + model.arch.norm_eps
    np.testing.assert_allclose(before + written / np.sqrt(size), after, atol=1e-5)


def test_token_maps_are_the_direct_path_to_the_logits():
    model = decoder("layer", 4)
    params = drawn(model)

    @jax.jit
    def run(params):
        tokens = Tokens(jnp.arange(11)[None], jnp.ones((1, 11), bool))
        stream = model.embed(params, tokens)
        return model.token_maps(params), stream.h, model.read_out(params, stream)

    (embedding, unembedding), h, got = jax.tree.map(np.asarray, run(params))
    size = np.sqrt(h.var(axis=-1, keepdims=True) + model.arch.norm_eps)
    np.testing.assert_allclose(h / size @ unembedding.T, got, atol=1e-5)
    np.testing.assert_array_equal(embedding, params["embed"]["tokens"])


def test_what_cannot_be_read_is_refused():
    stack, inputs = attention.LinearAttentionStack(*W), (H[None], QUERY[None])
    mlp = attention.MLPAttentionStack(*W, np.ones((L, 5, n)), np.ones((L, n, 5)))
    model = layered.LayeredStack.of(stack)
    for message, run in (
        ("layer: expected 0 to 1, got 2", lambda: model.ov_factors(2, stack)),
        (
            "model: expected attention_weights",
            lambda: layered.attention_patterns(layered.Batched(model), stack, inputs),
        ),
        (
            "params: expected an attention-only stack, got",
            lambda: layered.LayeredStack.of(mlp).ov_factors(0, mlp),
        ),
    ):
        with raises(message):
            run()
