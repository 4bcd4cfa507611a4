import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.pruning import Magnitude, Rank, kept_parameters, prune
from tests.raising import raises


def draws(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def kept_entries(W, kept):
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
        got = prune(W, rate, method=Magnitude())
        np.testing.assert_array_equal(got, kept_entries(W, kept))
        assert np.count_nonzero(got) == kept
    np.testing.assert_array_equal(Magnitude().by_size(W)(7), kept_entries(W, 7))
    assert np.count_nonzero(prune(W, 0.99, method=Magnitude(rule="ceil"))) == 1


@pytest.mark.slow
def test_ties_go_in_order_and_the_count_stays_exact():
    W = np.array([[1.0, -1.0, 2.0], [1.0, -2.0, 1.0]])
    for kept in range(7):
        np.testing.assert_array_equal(
            Magnitude().by_size(W)(kept), kept_entries(W, kept)
        )


def test_rate_zero_is_bit_for_bit_and_the_dtype_stays():
    W = draws(4, 6)
    W[0, 0] = -0.0
    W = jnp.asarray(W.astype(jnp.bfloat16))
    assert (
        np.asarray(prune(W, 0, method=Magnitude())).tobytes() == np.asarray(W).tobytes()
    )
    assert prune(W, 0.5, method=Magnitude()).dtype == jnp.bfloat16


@pytest.mark.slow
def test_equal_storage():
    W = draws(10, 10)
    kept = kept_parameters(W.shape, 2)
    assert np.count_nonzero(Magnitude().by_size(W)(kept)) == kept == 40


def test_bad_input():
    W = draws(2, 3)
    with raises("strength: expected a number in [0, 1), got 1"):
        prune(W, 1, method=Magnitude())
    with raises("rates: expected rates for Magnitude, got rank=2"):
        prune(W, Rank(2), method=Magnitude())
    with raises("W: expected finite entries, got "):
        prune(W * np.inf, 0.5, method=Magnitude())
    with raises("W: expected shape (m, n), got (6,)"):
        prune(W.ravel(), 0.5, method=Magnitude())
