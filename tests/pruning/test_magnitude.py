import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.pruning import kept_parameters, magnitude_prune
from tests.raising import raises


def draws(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def prune(W, kept):
    """The smallest entry goes first; of equal ones the first, row by row."""
    W = W.copy()
    entries = sorted((abs(W[i, j]), i, j) for i, j in np.ndindex(W.shape))
    for _, i, j in entries[: W.size - kept]:
        W[i, j] = 0
    return W


@pytest.mark.slow
def test_the_smallest_entries_go():
    W = draws(5, 8)
    for rate, kept in ((0.1, 36), (0.25, 30), (0.99, 0), (0.975, 1)):
        got = magnitude_prune(W, rate=rate)
        np.testing.assert_array_equal(got, prune(W, kept))
        assert np.count_nonzero(got) == kept
    np.testing.assert_array_equal(magnitude_prune(W, kept=7), prune(W, 7))
    assert np.count_nonzero(magnitude_prune(W, rate=0.99, rule="ceil")) == 1


@pytest.mark.slow
def test_ties_go_in_order_and_the_count_stays_exact():
    W = np.array([[1.0, -1.0, 2.0], [1.0, -2.0, 1.0]])
    for kept in range(7):
        np.testing.assert_array_equal(magnitude_prune(W, kept=kept), prune(W, kept))


def test_rate_zero_is_bit_for_bit_and_the_dtype_stays():
    W = draws(4, 6)
    W[0, 0] = -0.0
    W = jnp.asarray(W.astype(jnp.bfloat16))
    assert np.asarray(magnitude_prune(W, rate=0)).tobytes() == np.asarray(W).tobytes()
    assert magnitude_prune(W, rate=0.5).dtype == jnp.bfloat16


@pytest.mark.slow
def test_equal_storage():
    W = draws(10, 10)
    kept = kept_parameters(W.shape, 2)
    assert np.count_nonzero(magnitude_prune(W, kept=kept)) == kept == 40


def test_bad_input():
    W = draws(2, 3)
    with raises("rate, kept: expected exactly one of them, got neither"):
        magnitude_prune(W)
    with raises("rate: expected a number in [0, 1), got 1"):
        magnitude_prune(W, rate=1)
    with raises("kept: expected 0 <= kept <= 6, got 7"):
        magnitude_prune(W, kept=7)
    with raises("W: expected finite entries, got "):
        magnitude_prune(W * np.inf, rate=0.5)
    with raises("W: expected shape (m, n), got (6,)"):
        magnitude_prune(W.ravel(), rate=0.5)
