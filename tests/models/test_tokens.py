"""Token layouts: who stands where, and who sees whom."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.models import tokens
from tests.raising import raises

B, P, D = 2, 4, 3
_rng = np.random.default_rng(1)
X, Q = _rng.standard_normal((2, B, P, D))
Y = _rng.standard_normal((B, P))
tokenized = jax.jit(tokens.tokenized, static_argnums=0, static_argnames="last_only")


def test_interleaved_tokens_alternate_inputs_and_padded_labels():
    seq = tokenized("interleaved", X, Y)
    for b in range(B):
        for k in range(P):
            np.testing.assert_array_equal(seq.tokens[b, 2 * k], X[b, k])
            np.testing.assert_array_equal(seq.tokens[b, 2 * k + 1], [Y[b, k], 0, 0])
    assert seq.mask is None
    np.testing.assert_array_equal(seq.tokens[:, seq.outputs], X)


def test_appended_queries_stand_and_see_as_the_tokens_they_replace():
    seq = tokenized("interleaved", X, Y, Q)
    np.testing.assert_array_equal(seq.tokens[:, seq.outputs], Q)
    for k in range(P):
        row = 2 * P + k
        assert seq.positions[row] == seq.positions[2 * k]
        seen = set(np.flatnonzero(seq.mask[row]).tolist())
        assert seen == {*range(2 * k), row}
    for i in range(2 * P):
        assert set(np.flatnonzero(seq.mask[i]).tolist()) == set(range(i + 1))


def test_token_matrix_never_shows_a_query_its_label():
    seq = tokenized("matrix", X, Y)
    queries = seq.tokens[:, seq.outputs]
    np.testing.assert_array_equal(queries[:, :, :D], X)
    np.testing.assert_array_equal(queries[:, :, D], np.zeros((B, P)))
    for k in range(P):
        seen = set(np.flatnonzero(seq.mask[P - 1 + k]).tolist())
        assert seen == {*range(k), P - 1 + k}


@pytest.mark.slow
def test_last_only_is_the_papers_matrix():
    seq = tokenized("matrix", X, Y, last_only=True)
    assert seq.tokens.shape == (B, P, D + 1)
    np.testing.assert_array_equal(seq.tokens[:, :-1, D], Y[:, :-1])
    np.testing.assert_array_equal(seq.tokens[:, -1, D], np.zeros(B))


def test_shifted_tokens_show_a_query_the_pairs_before_it_alone():
    seq = tokenized("shifted", X, Y)
    assert seq.mask is None
    np.testing.assert_array_equal(seq.tokens[:, seq.outputs, :D], X)
    before = np.concatenate([np.zeros((B, 1)), Y[:, :-1]], axis=1)
    np.testing.assert_array_equal(seq.tokens[:, :, D], before)
    asked = tokenized("shifted", X, Y, Q)
    np.testing.assert_array_equal(asked.tokens[:, :P], seq.tokens)
    np.testing.assert_array_equal(asked.tokens[:, asked.outputs, :D], Q)
    np.testing.assert_array_equal(asked.tokens[:, asked.outputs, D], before)
    for k in range(P):
        assert set(np.flatnonzero(asked.mask[P + k]).tolist()) == {*range(k), P + k}
        assert set(np.flatnonzero(asked.mask[k]).tolist()) == set(range(k + 1))


@pytest.mark.parametrize("layout", tokens.LAYOUTS)
def test_queries_of_a_shared_context_see_it_and_themselves(layout):
    arrays = (jnp.asarray(array) for array in (X, Y, Q[:, :3]))
    seq = tokens.shared_context(layout, *arrays)
    length = 2 * P if layout == "interleaved" else P
    assert seq.tokens.shape[1] == length + 3
    np.testing.assert_array_equal(seq.tokens[:, seq.outputs, :D], Q[:, :3])
    for row in range(length + 3):
        seen = set(np.flatnonzero(seq.mask[row]).tolist())
        assert seen == {*range(min(row, length)), row}
    np.testing.assert_array_equal(seq.positions[length:], np.full(3, length))


def test_an_unknown_layout_is_refused():
    arrays = map(jnp.asarray, (X, Y, Q))
    with raises("token_layout: expected one of 'interleaved', 'matrix', 'shifted'"):
        tokens.shared_context("rows", *arrays)
