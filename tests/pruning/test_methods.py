"""Ways to prune one matrix: each against its definition, and what all share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.layered import get_matrix
from icltheory.pruning import (
    LowRank,
    Magnitude,
    Rank,
    Whitened,
    frobenius_split,
    kept_parameters,
    prune,
    prune_model,
    rank_for_rate,
    sweep,
    sweep_grid,
)
from icltheory.pruning.rates import as_strengths
from tests.oracles import truncate
from tests.pruning.models import MODEL, SCORED, STACK
from tests.raising import raises


def draws(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def whiten(W, rank):
    """Direction by direction, each with the root mean square of the kept values."""
    U, s, Vt = np.linalg.svd(W, full_matrices=False)
    size = np.sqrt(sum(s[i] ** 2 for i in range(rank)) / rank)
    total = np.zeros_like(W)
    for i in range(rank):
        total += size * np.outer(U[:, i], Vt[i])
    return total


def kept_entries(W, kept):
    """The smallest entry goes first; of equal ones the first, row by row."""
    W = W.copy()
    entries = sorted((abs(W[i, j]), i, j) for i, j in np.ndindex(W.shape))
    for _, i, j in entries[: W.size - kept]:
        W[i, j] = 0
    return W


@pytest.mark.parametrize(
    ("method", "definition", "atol"),
    [(LowRank(), truncate, 1e-14), (Whitened(), whiten, 1e-12)],
)
def test_a_rank_keeps_the_largest_singular_values(method, definition, atol):
    W = draws(5, 7)
    for rank in range(1, 5):
        found = prune(W, Rank(rank), method=method)
        np.testing.assert_allclose(found, definition(W, rank), atol=atol)
    for rule, rank in (("floor", 2), ("ceil", 3)):
        by_rate = prune(W, 0.5, method=type(method)(rule=rule))
        np.testing.assert_array_equal(by_rate, prune(W, Rank(rank), method=method))


@pytest.mark.slow
def test_the_smallest_entries_go():
    W = draws(5, 8)
    for rate, kept in ((0.1, 36), (0.25, 30), (0.99, 0), (0.975, 1)):
        got = prune(W, rate, method=Magnitude())
        np.testing.assert_array_equal(got, kept_entries(W, kept))
        assert np.count_nonzero(got) == kept
    assert np.count_nonzero(prune(W, 0.99, method=Magnitude(rule="ceil"))) == 1
    ties = np.array([[1.0, -1.0, 2.0], [1.0, -2.0, 1.0]])
    for kept in range(7):
        got = Magnitude().by_size(ties)(kept)
        np.testing.assert_array_equal(got, kept_entries(ties, kept))
    same_storage = kept_parameters((10, 10), 2)
    kept = np.count_nonzero(Magnitude().by_size(draws(10, 10))(same_storage))
    assert kept == same_storage == 40


@pytest.mark.statement("Yao: Section 2 (xi -> r)")
@pytest.mark.parametrize("method", [LowRank(), Whitened(), Magnitude()])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_rate_zero_and_full_rank_return_the_weight_bit_for_bit(dtype, method):
    W = draws(4, 6) * 1e-3
    W[0, 0] = -0.0
    W = jnp.asarray(W.astype(jnp.dtype(dtype)))
    full = 0.0 if method == Magnitude() else Rank(4)
    for same in (prune(W, 0, method=method), prune(W, full, method=method)):
        assert same.dtype == W.dtype
        assert np.asarray(same).tobytes() == np.asarray(W).tobytes()
    assert prune(W, 0.5, method=method).dtype == W.dtype


@pytest.mark.statement("Yao: Section 2 (xi -> r)")
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_the_error_of_clipping_is_rounding_of_the_dtype(dtype):
    W = jnp.asarray((draws(4, 6) * 1e-3).astype(jnp.dtype(dtype)))
    wide = np.asarray(W).astype(np.float64)
    error = np.abs(np.asarray(prune(W, Rank(2))).astype(np.float64) - truncate(wide, 2))
    # LAPACK's bound of the backward error, with the root of m n for its constant, times
    # the condition of a truncation at rank 2, s_2 / (s_2 - s_3).
    s = np.linalg.svd(wide, compute_uv=False)
    bound = np.sqrt(W.size) * float(jnp.finfo(dtype).eps) * s[0] * s[1] / (s[1] - s[2])
    assert error.max() <= bound


def test_whitening_keeps_spaces_and_norm_of_clipping_with_condition_number_one():
    W = draws(8, 8, seed=1)
    for rate in (0.25, 0.5, 0.875):
        rank = rank_for_rate(W.shape, rate)
        white, clipped = (
            np.asarray(prune(W, rate, method=method))
            for method in (Whitened(), LowRank())
        )
        s = np.linalg.svd(white, compute_uv=False)
        np.testing.assert_allclose(s[:rank], s[0], rtol=1e-12)
        np.testing.assert_allclose(s[rank:], 0, atol=1e-12)
        assert np.linalg.norm(white) == pytest.approx(np.linalg.norm(clipped))
        # The rows of one lie in the row space of the other.
        both = np.linalg.matrix_rank(np.concatenate([white, clipped]))
        assert both == rank == np.linalg.matrix_rank(white)


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


def test_ranks_take_the_place_of_rates_in_models_and_sweeps():
    for method in (LowRank(), Whitened()):
        by_rank, by_rate = (
            prune_model(MODEL, STACK, f"1:attn:{strength}", method=method)
            for strength in ("rank=3", "0.5")
        )
        for spec in MODEL.matrices(1):
            np.testing.assert_array_equal(
                get_matrix(by_rank, spec), get_matrix(by_rate, spec)
            )
    clipped = prune_model(MODEL, STACK, "1:W_Q,W_V:rank=2")
    for name, rank in (("W_V", 2), ("W_K", 6), ("W_Q", 2)):
        assert np.linalg.matrix_rank(getattr(clipped, name)[1]) == rank
    rates, ranks = [0, 0.5, 0.75], [Rank(6), Rank(3), Rank(1)]
    swept = sweep(SCORED, 1, "attn", rates)
    np.testing.assert_array_equal(sweep(SCORED, 1, "attn", ranks), swept)
    grid = sweep_grid(SCORED, [1], ["attn", "W_V"], ranks)
    np.testing.assert_allclose(grid[0, 0], swept, rtol=1e-12)
    assert as_strengths([np.float32(0.1), Rank(4)]) == (0.1, Rank(4))


@pytest.mark.usefixtures("as_for_a_user")
def test_bad_input():
    W = draws(4, 6)
    for rank in (0, -1):
        with raises(f"rank: expected a positive integer, got {rank}"):
            prune(W, Rank(rank))
    for rate in (1.0, None, "x"):
        with raises(f"strength: expected a number in [0, 1), got {rate!r}"):
            prune(W, rate)
    for rates, message in (
        ([], "rates: expected at least one, got none"),
        (0.5, "rates: expected a sequence, got 0.5"),
        ([1.0], "rates: expected numbers in [0, 1), got 1.0"),
    ):
        with raises(message):
            as_strengths(rates)
    with raises("method: expected a Method, got 'svd'"):
        prune(W, 0.5, method="svd")
    with raises("rate: expected a rate that leaves a rank >= 1 of 4, got 0.9"):
        prune(W, 0.9)
    with raises("rates: expected rates for Magnitude, got rank=2"):
        prune(W, Rank(2), method=Magnitude())
    bad = W.copy()
    bad[1, 2] = np.nan
    for function in (
        lambda W: prune(W, Rank(1)),
        lambda W: prune(W, 0.5, method=Magnitude()),
        lambda W: frobenius_split(W, 1),
    ):
        with raises("W: expected finite entries, got "):
            function(bad)
        with raises("W: expected shape (m, n), got (2, 4, 6)"):
            function(np.stack([W, W]))
    with raises("rank: expected 0 <= rank <= 4, got 5"):
        frobenius_split(W, 5)
    for call in (
        lambda: prune(W, Rank(7)),
        lambda: prune_model(MODEL, STACK, "1:attn:rank=7"),
        lambda: sweep(SCORED, 1, "attn", [Rank(7)]),
    ):
        with raises("rank: expected 1 <= rank <= "):
            call()
