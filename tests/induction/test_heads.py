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
    prefix_matching_score,
    previous_token_score,
)
from icltheory.layered import attention_patterns
from tests.raising import raises
from tests.weights import drawn

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
    return drawn(DECODER.init, seed=0)


@pytest.mark.slow
def test_every_head_has_the_score_of_its_pattern():
    rows = np.broadcast_to(np.arange(12)[None] % 2 == 0, IDS.shape)
    read = jax.jit(functools.partial(head_scores, DECODER))
    found = jax.tree.map(np.asarray, read(params(), inputs(), IDS, rows))
    patterns = jax.jit(functools.partial(attention_patterns, DECODER))
    assert found.prefix_matching.shape == found.previous_token.shape == (2, 2)
    for layer, pattern in enumerate(patterns(params(), inputs())):
        for head in range(2):
            one = np.asarray(pattern)[:, head]
            pair = found.prefix_matching[layer, head], found.previous_token[layer, head]
            scores = prefix_matching_score(one, IDS, rows), previous_token_score(one)
            np.testing.assert_allclose(pair, scores, rtol=1e-5)


def test_copying_of_a_head_is_that_of_its_whole_circuit():
    wide = jax.tree.map(lambda W: jnp.asarray(np.asarray(W, float)), params())

    @jax.jit
    def read(params):
        maps = DECODER.token_maps(params)
        factors = [DECODER.ov_factors(layer, params) for layer in range(2)]
        return maps, factors, head_copying(DECODER, params, *maps)

    maps, factors, found = jax.tree.map(np.asarray, read(wide))
    for layer, (W_O, W_V) in enumerate(factors):
        for head in range(2):
            whole = maps[1] @ W_O[head] @ W_V[head] @ maps[0].T
            # Eight of its twelve eigenvalues are zero up to rounding.
            expected = float(copying_score(whole))
            assert found[layer, head] == pytest.approx(expected, abs=1e-6)


class Silent:
    """A layered model that keeps its attention to itself."""

    num_layers = 1

    def embed(self, params, inputs):
        return inputs

    block = read_out = matrices = embed


def test_what_has_no_score_is_refused():
    flat = jnp.asarray(np.ones((3, 8)))
    scored, lacks = (params(), inputs()), "model: expected attention_weights"
    for run, message in (
        (lambda: head_scores(Silent(), *scored, IDS), lacks),
        (lambda: head_copying(Silent(), params(), flat, flat), lacks),
        (lambda: head_scores(DECODER, *scored, IDS[:, :5]), "tokens: expected shape"),
        (
            lambda: head_copying(DECODER, params(), flat, np.ones((4, 8), "f4")),
            "unembedding: expected shape",
        ),
    ):
        with raises(message):
            run()
