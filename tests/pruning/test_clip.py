import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.pruning import LowRank, Rank, frobenius_split, prune
from tests.oracles import truncate
from tests.raising import raises


def draws(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def test_clip_is_the_sum_of_the_largest_terms():
    W = draws(5, 7)
    for rank in range(1, 5):
        np.testing.assert_allclose(prune(W, Rank(rank)), truncate(W, rank), atol=1e-14)
    np.testing.assert_array_equal(prune(W, 0.5), prune(W, Rank(2)))
    np.testing.assert_array_equal(
        prune(W, 0.5, method=LowRank(rule="ceil")), prune(W, Rank(3))
    )


@pytest.mark.statement("Yao: Section 2 (xi -> r)")
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_rate_zero_and_full_rank_return_the_weight_bit_for_bit(dtype):
    W = jnp.asarray((draws(4, 6) * 1e-3).astype(jnp.dtype(dtype)))
    for same in (prune(W, 0), prune(W, 0.0), prune(W, Rank(4))):
        assert same.dtype == W.dtype
        assert np.asarray(same).tobytes() == np.asarray(W).tobytes()
    assert prune(W, Rank(2)).dtype == W.dtype
    wide = np.asarray(W).astype(np.float64)
    error = np.abs(np.asarray(prune(W, Rank(2))).astype(np.float64) - truncate(wide, 2))
    # LAPACK's bound of the backward error, with the root of m n for its constant, times
    # the condition of a truncation at rank 2, s_2 / (s_2 - s_3).
    s = np.linalg.svd(wide, compute_uv=False)
    bound = np.sqrt(W.size) * float(jnp.finfo(dtype).eps) * s[0] * s[1] / (s[1] - s[2])
    assert error.max() <= bound


def test_split_is_the_norms_of_the_two_parts_squared():
    W = draws(6, 4)
    for rank in range(5):
        kept, removed = frobenius_split(W, rank)
        part = truncate(W, rank)
        np.testing.assert_allclose(kept, np.sum(part**2), atol=1e-13)
        np.testing.assert_allclose(removed, np.sum((W - part) ** 2), atol=1e-13)
    split = jax.jit(jax.vmap(frobenius_split, (None, 0)))(W, jnp.arange(5))
    np.testing.assert_allclose(split.kept + split.removed, np.sum(W**2), rtol=1e-14)
    # Along W itself each part, a square, changes by twice its value.
    along = jax.jit(lambda W: jax.jvp(lambda W: frobenius_split(W, 2), [W], [W]))
    value, change = along(W)
    np.testing.assert_allclose(value.kept, np.sum(truncate(W, 2) ** 2), rtol=1e-13)
    np.testing.assert_allclose(change.kept, 2 * value.kept, rtol=1e-13)
    np.testing.assert_allclose(change.removed, 2 * value.removed, rtol=1e-13)


@pytest.mark.slow
def test_gradients_are_twice_the_parts_also_for_repeated_values():
    one, W = np.eye(4), draws(4, 6)
    parts_of = jax.jit(jax.jacrev(frobenius_split), static_argnums=1)
    for matrix, rank in ((W, 2), (np.diag([2.0, 2.0, 1.0, 1.0]), 2), (one, 4)):
        kept, removed = map(np.asarray, parts_of(matrix, rank))
        part = truncate(matrix, rank)
        split = functools.partial(frobenius_split, rank=rank)
        values, _ = jax.jvp(split, [matrix], [matrix])
        np.testing.assert_allclose(values, frobenius_split(matrix, rank), atol=1e-13)
        np.testing.assert_allclose(kept, 2 * part, atol=1e-13)
        np.testing.assert_allclose(removed, 2 * (matrix - part), atol=1e-13)
    kept, removed = map(np.asarray, parts_of(one, 2))  # a tie across the cut
    np.testing.assert_allclose(kept + removed, 2 * one, atol=1e-14)
    slope = jax.jit(jax.grad(lambda W: prune(W, Rank(2)).sum()))
    assert np.isfinite(slope(one)).all()


@pytest.mark.usefixtures("as_for_a_user")
def test_bad_input():
    W = draws(4, 6)
    with raises("rank: expected 1 <= rank <= 4, got 5"):
        prune(W, Rank(5))
    for rank in (0, -1):
        with raises(f"rank: expected a positive integer, got {rank}"):
            prune(W, Rank(rank))
    for rate in (1.0, None, "x"):
        with raises(f"strength: expected a number in [0, 1), got {rate}"):
            prune(W, rate)
    with raises("method: expected a Method, got 'svd'"):
        prune(W, 0.5, method="svd")
    with raises("rate: expected a rate that leaves a rank >= 1 of 4, got 0.9"):
        prune(W, 0.9)
    bad = W.copy()
    bad[1, 2] = np.nan
    for function in (lambda W: prune(W, Rank(1)), lambda W: frobenius_split(W, 1)):
        with raises("W: expected finite entries, got "):
            function(bad)
        with raises("W: expected shape (m, n), got (2, 4, 6)"):
            function(np.stack([W, W]))
    with raises("rank: expected 0 <= rank <= 4, got 5"):
        frobenius_split(W, 5)
