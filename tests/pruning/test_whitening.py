"""Clipping with equal singular values against its sum, and what it keeps."""

import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.pruning import Rank, Whitened, prune, rank_for_rate


def summed(W, rank):
    """Direction by direction, each with the root mean square of the kept values."""
    U, s, Vt = np.linalg.svd(W, full_matrices=False)
    size = np.sqrt(sum(s[i] ** 2 for i in range(rank)) / rank)
    total = np.zeros_like(W)
    for i in range(rank):
        total += size * np.outer(U[:, i], Vt[i])
    return total


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_it_is_the_sum_over_the_kept_directions(rank):
    W = np.random.default_rng(0).normal(size=(6, 9))
    np.testing.assert_allclose(
        prune(W, Rank(rank), method=Whitened()), summed(W, rank), atol=1e-12
    )


def test_it_keeps_spaces_and_norm_of_clipping_with_condition_number_one():
    W = np.random.default_rng(1).normal(size=(8, 8))
    for rate in (0.25, 0.5, 0.875):
        rank = rank_for_rate(W.shape, rate)
        white, clipped = (
            np.asarray(prune(W, rate, method=Whitened())),
            np.asarray(prune(W, rate)),
        )
        s = np.linalg.svd(white, compute_uv=False)
        np.testing.assert_allclose(s[:rank], s[0], rtol=1e-12)
        np.testing.assert_allclose(s[rank:], 0, atol=1e-12)
        assert np.linalg.norm(white) == pytest.approx(np.linalg.norm(clipped))
        # The rows of one lie in the row space of the other.
        both = np.linalg.matrix_rank(np.concatenate([white, clipped]))
        assert both == rank == np.linalg.matrix_rank(white)


def test_rank_one_is_clipping_and_the_full_rank_is_the_matrix_itself():
    W = jnp.asarray(np.random.default_rng(2).normal(size=(4, 5)), jnp.float16)
    np.testing.assert_array_equal(prune(W, 0, method=Whitened()), W)
    np.testing.assert_allclose(
        prune(W, Rank(1), method=Whitened()), prune(W, Rank(1)), atol=1e-3
    )
    assert prune(W, Rank(2), method=Whitened()).dtype == jnp.float16
