"""Scores of the heads of layered models: which head is which, and what is refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge import Architecture, Decoder, Tokens
from icltheory.induction import (
    copying_score,
    head_copying,
    head_scores,
    induction_circuit,
    prefix_matching_score,
    previous_token_score,
)
from icltheory.layered import attention_patterns

ARCH = Architecture(
    family="gpt2",
    vocab_size=12,
    width=8,
    num_layers=2,
    num_heads=2,
    num_kv_heads=2,
    head_dim=4,
    mlp_width=16,
    max_positions=16,
)
DECODER = Decoder(ARCH)
IDS = np.tile(np.array([[1, 5, 3, 7], [2, 9, 4, 0]]), (1, 3))


@functools.cache
def inputs():
    return Tokens(jnp.asarray(IDS), jnp.asarray(np.ones(IDS.shape, bool)))


@functools.cache
def params():
    shapes = jax.eval_shape(DECODER.init, jax.random.key(0))
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda s: jnp.asarray(0.3 * rng.normal(size=s.shape).astype(s.dtype)), shapes
    )


@pytest.mark.slow
def test_every_head_has_the_score_of_its_pattern():
    rows = np.broadcast_to(np.arange(12)[None] % 2 == 0, IDS.shape)
    read = jax.jit(functools.partial(head_scores, DECODER))
    found = jax.tree.map(np.asarray, read(params(), inputs(), IDS, rows))
    patterns = jax.jit(functools.partial(attention_patterns, DECODER))
    prefix_score, previous = map(jax.jit, (prefix_matching_score, previous_token_score))
    assert found.prefix_matching.shape == found.previous_token.shape == (2, 2)
    for layer, pattern in enumerate(patterns(params(), inputs())):
        for head in range(2):
            one = np.asarray(pattern)[:, head]
            prefix = prefix_score(one, IDS, rows)
            assert found.prefix_matching[layer, head] == pytest.approx(
                float(prefix), rel=1e-5
            )
            assert found.previous_token[layer, head] == pytest.approx(
                float(previous(one)), rel=1e-5
            )


def test_the_uniform_head_is_scored_beside_them():
    """Attention 1 / (t + 1) everywhere has (occurrences before t) / (t + 1)."""
    circuit, tokens = induction_circuit(3, 6), jnp.array([0, 1, 0, 0, 2, 1])
    shown = circuit.embed(tokens)
    found = head_scores(circuit.model, circuit.stack, shown, tokens)
    expected = np.mean([1 / 3, 2 / 4, 1 / 6])  # at t = 2, 3 and 5
    np.testing.assert_allclose(found.uniform, expected, rtol=1e-12)


def test_copying_of_a_head_is_that_of_its_whole_circuit():
    wide = jax.tree.map(lambda W: jnp.asarray(np.asarray(W, float)), params())

    @jax.jit
    def read(params):
        maps = DECODER.token_maps(params)
        factors = [DECODER.ov_factors(layer, params) for layer in range(2)]
        return maps, factors, head_copying(DECODER, params, *maps)

    maps, factors, found = jax.tree.map(np.asarray, read(wide))
    score = jax.jit(copying_score)
    for layer, (W_O, W_V) in enumerate(factors):
        for head in range(2):
            whole = maps[1] @ W_O[head] @ W_V[head] @ maps[0].T
            # Eight of its twelve eigenvalues are zero up to rounding.
            expected = float(score(whole))
            assert found[layer, head] == pytest.approx(expected, abs=1e-6)


def test_scores_tell_the_two_heads_of_the_circuit_apart():
    tokens = np.tile([3, 1, 5, 0], 3)

    @jax.jit
    def read():
        circuit = induction_circuit(6, 12)
        shown = circuit.embed(tokens)
        return head_scores(circuit.model, circuit.stack, shown, tokens)

    found = read()
    assert np.argmax(found.prefix_matching) == 1
    assert np.argmax(found.previous_token) == 0


class Silent:
    """A layered model that keeps its attention to itself."""

    num_layers = 1

    def embed(self, params, inputs):
        return inputs

    block = read_out = matrices = embed


def test_what_has_no_score_is_refused():
    flat = jnp.asarray(np.ones((3, 8)))
    with pytest.raises(ValueError, match="model: expected attention_weights"):
        head_scores(Silent(), params(), inputs(), IDS)
    with pytest.raises(ValueError, match="model: expected attention_weights"):
        head_copying(Silent(), params(), flat, flat)
    with pytest.raises(ValueError, match="tokens: expected shape"):
        jax.eval_shape(
            lambda p: head_scores(DECODER, p, inputs(), IDS[:, :5]), params()
        )
    with pytest.raises(ValueError, match="unembedding: expected shape"):
        head_copying(DECODER, params(), flat, jnp.asarray(np.ones((4, 8))))
