"""Patterns and codes: orthonormal, in the span or partly so, and how columns look."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import chain_of_thought as cot


@pytest.fixture(scope="module")
def letters():
    make = jax.jit(cot.Alphabet.orthonormal, static_argnums=(1, 2, 3))
    return make(jax.random.key(0), 6, 3, 14)


def test_patterns_and_codes_are_orthonormal(letters):
    assert (letters.num_states, letters.num_steps, letters.dim) == (6, 3, 14)
    words = np.concatenate([letters.patterns, letters.codes[:, :14]])
    np.testing.assert_allclose(words @ words.T, np.eye(9), atol=1e-12)
    np.testing.assert_array_equal(letters.codes[:, 14:], 0)


@pytest.mark.parametrize("residual", [0.0, 0.6, 1.0])
def test_unseen_patterns_have_their_part_outside_the_span(letters, residual, key):
    make = jax.jit(cot.Alphabet.unseen, static_argnums=(2, 3))
    unseen = make(letters, jax.random.fold_in(key, 1), 4, residual)
    patterns = np.asarray(unseen.patterns)
    np.testing.assert_allclose(patterns @ patterns.T, np.eye(4), atol=1e-12)
    found = cot.span_residual(patterns, letters.patterns)
    np.testing.assert_allclose(found, residual, atol=1e-12)
    leak = patterns @ np.asarray(letters.codes)[:, :14].T
    np.testing.assert_allclose(leak, 0, atol=1e-12)
    np.testing.assert_array_equal(unseen.codes, letters.codes)


def test_columns_and_their_nearest_state(letters):
    column = letters.embed(jnp.array([2]), jnp.array([-1]), jnp.array([1]))[0]
    patterns, codes = np.asarray(letters.patterns), np.asarray(letters.codes)
    expected = np.pad(patterns[2], (0, 14)) + codes[1]
    np.testing.assert_allclose(column, expected, atol=1e-15)
    nearest = jax.jit(lambda v: letters.nearest(v))
    assert [int(nearest(p + 0.3)) for p in patterns] == [
        int(np.argmin(np.sum((patterns - p - 0.3) ** 2, axis=1))) for p in patterns
    ]


def test_the_nearest_state_of_patterns_of_several_lengths():
    uneven = cot.Alphabet(jnp.array([[1.0, 0.0], [3.0, 0.0]]), jnp.zeros((1, 4)))
    found = [int(uneven.nearest(jnp.array([x, 0.5]))) for x in (1.0, 1.9, 2.1, 9.0)]
    assert found == [0, 0, 1, 1]


@pytest.mark.slow
def test_the_part_outside_the_span_is_found_in_half_precision_too():
    found = cot.span_residual(jnp.array([[3.0, 4.0]], jnp.bfloat16), np.eye(1, 2))
    np.testing.assert_allclose(found, [0.8], rtol=1e-6)


def test_what_does_not_fit_is_refused_with_its_inequality(letters, key):
    for message, run in (
        (
            r"M \+ K <= d .* got 12 \+ 3 > 14",
            lambda: cot.Alphabet.orthonormal(key, 12, 3, 14),
        ),
        ("M' <= M = 6, got 7", lambda: letters.unseen(key, 7)),
        ("M' <= d - M - K = 5, got 6", lambda: letters.unseen(key, 6, 0.5)),
        (
            r"residual: expected a value in \[0, 1\], got 2",
            lambda: letters.unseen(key, 2, 2.0),
        ),
        (
            "at most 2 linearly independent patterns, got 3",
            lambda: cot.span_residual(np.eye(2), np.ones((3, 2))),
        ),
        (
            r"codes: expected shape \(K, 4\)",
            lambda: cot.Alphabet(jnp.eye(2), jnp.ones((1, 3))),
        ),
    ):
        with pytest.raises(ValueError, match=message):
            run()
