import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.pruning import prune_rows

W = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)


@pytest.mark.slow
def test_rows_go_by_norm_and_stay_bit_for_bit():
    order = np.argsort([np.linalg.norm(row) for row in W])
    for count in range(8):
        for by, goes in (("magnitude", order), ("reverse", order[::-1])):
            wanted = W.copy()
            wanted[goes[:count]] = 0
            got = prune_rows(W, kept=7 - count, order=by)
            assert got.dtype == W.dtype
            np.testing.assert_array_equal(got, wanted)
            np.testing.assert_array_equal(prune_rows(W, count / 7, order=by), wanted)


def test_ties_go_in_order():
    ones = np.ones((4, 2))
    for order in ("magnitude", "reverse"):
        left = np.asarray(prune_rows(ones, 0.5, order=order))[:, 0]
        assert left.tolist() == [0, 0, 1, 1]


def test_the_order_says_which_rows_go_first():
    rows = np.diag([2.0, 3.0, 1.0])
    for order, left in (("magnitude", [0, 1]), ("reverse", [0, 2])):
        kept = np.asarray(prune_rows(rows, kept=2, order=order)).any(axis=1)
        assert np.flatnonzero(kept).tolist() == left


@pytest.mark.slow
def test_a_half_rounds_to_even():
    rows = np.arange(1.0, 11).reshape(10, 1)
    kept = [np.count_nonzero(prune_rows(rows, R)) for R in (0.05, 0.15, 0.25, 0.35)]
    assert kept == [10 - round(10 * R) for R in (0.05, 0.15, 0.25, 0.35)]


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_norms_of_half_precision_are_compared_in_single(dtype):
    rows = 1e4 * np.random.default_rng(0).normal(size=(64, 256))
    rows = jnp.asarray(rows.astype(dtype))
    half = jax.jit(lambda rows: prune_rows(rows, 0.5))
    kept = (np.asarray(half(rows)) != 0).any(axis=1)
    wide = np.asarray(rows).astype(np.float64)
    exact = (np.asarray(half(wide)) != 0).any(axis=1)
    np.testing.assert_array_equal(kept, exact)


def test_traced_counts_and_fractions():
    kept = np.arange(8)
    many = jax.jit(jax.vmap(lambda k: prune_rows(W, kept=k)))(kept)
    shares = jax.jit(jax.vmap(lambda r: prune_rows(W, r)))(1 - kept / 7)
    np.testing.assert_array_equal(many, shares)
    np.testing.assert_array_equal((np.asarray(many) != 0).any(-1).sum(1), kept)


def test_minus_zero_and_special_values_stay():
    rows = np.array([[-0.0, 5.0], [1.0, 0.0]])
    assert np.asarray(prune_rows(rows, 0)).tobytes() == rows.tobytes()


def test_bad_input():
    def refused(message, *args, **kwargs):
        with pytest.raises(ValueError, match="^" + re.escape(message)):
            prune_rows(W, *args, **kwargs)

    refused("fraction, kept: expected exactly one of them, got neither")
    refused("fraction, kept: expected exactly one of them, got both", 0.1, kept=1)
    refused("fraction: expected 0 <= fraction <= 1, got 1.5", 1.5)
    refused("fraction: expected 0 <= fraction <= 1, got -0.5", -0.5)
    refused("kept: expected 0 <= kept <= 7, got 8", kept=8)
    refused("kept: expected a whole number, got 1.5", kept=1.5)
    refused("order: expected one of", 0.1, order="smallest")
    refused("key: expected a key with order 'random', got None", 0.1, order="random")
