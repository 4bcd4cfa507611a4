"""A rank in the place of a rate: what either keeps."""

import numpy as np
import pytest

from icltheory.layered import get_matrix
from icltheory.pruning import (
    LowRank,
    Magnitude,
    Rank,
    Scored,
    Whitened,
    prune,
    prune_model,
    sweep,
    sweep_grid,
)
from icltheory.pruning.rates import as_strengths
from tests.pruning.models import INPUTS, MODEL, STACK, TARGETS, errors
from tests.raising import raises


@pytest.mark.parametrize("method", [LowRank(), Whitened()])
def test_a_rank_prunes_as_the_rate_that_leaves_it(method):
    by_rank = prune_model(MODEL, STACK, "1:attn:rank=3", method=method)
    by_rate = prune_model(MODEL, STACK, "1:attn:0.5", method=method)
    for spec in MODEL.matrices(1):
        np.testing.assert_array_equal(
            get_matrix(by_rank, spec), get_matrix(by_rate, spec)
        )
    W = np.asarray(STACK.W_V[1])
    if method == LowRank():
        np.testing.assert_allclose(by_rank.W_V[1], prune(W, Rank(3)), atol=1e-14)


def test_the_full_rank_changes_nothing():
    same = prune_model(MODEL, STACK, "1:attn:rank=6")
    np.testing.assert_array_equal(same.W_V, STACK.W_V)


def test_several_names_joined_by_commas_are_one_module():
    new = prune_model(MODEL, STACK, "1:W_Q,W_V:rank=2")
    ranks = [np.linalg.matrix_rank(getattr(new, n)[1]) for n in ("W_V", "W_K", "W_Q")]
    assert ranks == [2, 6, 2]


def test_lists_of_strengths_take_both():
    assert as_strengths([np.float32(0.1), Rank(4)]) == (0.1, Rank(4))
    for wrong, message in (
        ([], "rates: expected at least one, got none"),
        (0.5, "rates: expected a sequence, got 0.5"),
        ([1.0], "rates: expected numbers in [0, 1), got 1.0"),
    ):
        with raises(message):
            as_strengths(wrong)


def test_impossible_ranks():
    with raises("rank: expected a positive integer, got 0"):
        Rank(0)
    with raises("rank: expected 1 <= rank <= 6, got 7"):
        prune_model(MODEL, STACK, "1:attn:rank=7")
    with raises("rates: expected rates for Magnitude, got rank=2"):
        prune_model(MODEL, STACK, "1:attn:rank=2", method=Magnitude())


def test_sweeps_take_ranks_beside_rates():
    scored = Scored(MODEL, STACK, INPUTS, errors, (TARGETS,))
    by_rate = sweep(scored, 1, "attn", [0, 0.5, 0.75])
    by_rank = sweep(scored, 1, "attn", [Rank(6), Rank(3), Rank(1)])
    np.testing.assert_array_equal(by_rank, by_rate)
    grid = sweep_grid(scored, [1], ["attn", "W_V"], [Rank(6), Rank(3), Rank(1)])
    np.testing.assert_allclose(grid[0, 0], by_rate, rtol=1e-12)
    with raises("rank: expected 1 <= rank <= 6, got 7"):
        sweep(scored, 1, "attn", [Rank(7)])
