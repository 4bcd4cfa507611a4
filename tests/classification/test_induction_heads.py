"""Scores of the heads of layered models: which head is which, and what is refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge import Architecture, Decoder, Tokens
from icltheory.classification import (
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
PARAMS = jax.jit(DECODER.init)(jax.random.key(0))
IDS = jnp.tile(jnp.array([[1, 5, 3, 7], [2, 9, 4, 0]]), (1, 3))


def test_every_head_has_the_score_of_its_pattern():
    inputs = Tokens(IDS, jnp.ones(IDS.shape, bool))
    rows = jnp.arange(12)[None] % 2 == 0
    rows = jnp.broadcast_to(rows, IDS.shape)
    read = jax.jit(functools.partial(head_scores, DECODER))
    found = read(PARAMS, inputs, IDS, rows)
    patterns = jax.jit(functools.partial(attention_patterns, DECODER))(PARAMS, inputs)
    assert found.prefix_matching.shape == found.previous_token.shape == (2, 2)
    for layer, pattern in enumerate(patterns):
        for head in range(2):
            one = pattern[:, head]
            prefix = prefix_matching_score(one, IDS, rows)
            assert found.prefix_matching[layer, head] == pytest.approx(
                float(prefix), rel=1e-5
            )
            assert found.previous_token[layer, head] == pytest.approx(
                float(previous_token_score(one)), rel=1e-5
            )


def test_copying_of_a_head_is_that_of_its_whole_circuit():
    maps = jax.tree.map(lambda W: W.astype(float), DECODER.token_maps(PARAMS))
    wide = jax.tree.map(lambda W: W.astype(float), PARAMS)
    found = head_copying(DECODER, wide, *maps)
    for layer in range(2):
        W_O, W_V = DECODER.ov_factors(layer, wide)
        for head in range(2):
            whole = maps[1] @ W_O[head] @ W_V[head] @ maps[0].T
            # Eight of its twelve eigenvalues are zero up to rounding.
            assert found[layer, head] == pytest.approx(
                float(copying_score(whole)), abs=1e-6
            )


def test_scores_tell_the_two_heads_of_the_circuit_apart():
    circuit, tokens = induction_circuit(6, 12), np.tile([3, 1, 5, 0], 3)
    found = head_scores(circuit.model, circuit.stack, circuit.embed(tokens), tokens)
    assert np.argmax(found.prefix_matching) == 1
    assert np.argmax(found.previous_token) == 0


class Silent:
    """A layered model that keeps its attention to itself."""

    num_layers = 1

    def embed(self, params, inputs):
        return inputs

    block = read_out = matrices = embed


def test_what_has_no_score_is_refused():
    inputs = Tokens(IDS, jnp.ones(IDS.shape, bool))
    with pytest.raises(ValueError, match="model: expected attention_weights"):
        head_scores(Silent(), PARAMS, inputs, IDS)
    with pytest.raises(ValueError, match="model: expected attention_weights"):
        head_copying(Silent(), PARAMS, jnp.ones((3, 8)), jnp.ones((3, 8)))
    with pytest.raises(ValueError, match="tokens: expected shape"):
        head_scores(DECODER, PARAMS, inputs, IDS[:, :5])
    with pytest.raises(ValueError, match="unembedding: expected shape"):
        head_copying(DECODER, PARAMS, jnp.ones((3, 8)), jnp.ones((4, 8)))
