"""A rank beside a rate: what either keeps, and that exactly one is given."""

import numpy as np
import pytest

from icltheory.layered import get_matrix
from icltheory.pruning import Rank, clip, prune_module, sweep, sweep_grid
from icltheory.pruning.rates import strengths_of
from tests.pruning.models import INPUTS, MODEL, STACK, TARGETS, errors
from tests.raising import raises


@pytest.mark.parametrize("method", ["svd", "whitened"])
def test_a_rank_prunes_as_the_rate_that_leaves_it(method):
    by_rank = prune_module(MODEL, STACK, 1, "attn", rank=3, method=method)
    by_rate = prune_module(MODEL, STACK, 1, "attn", 0.5, method=method)
    for spec in MODEL.matrices(1):
        np.testing.assert_array_equal(
            get_matrix(by_rank, spec), get_matrix(by_rate, spec)
        )
    W = np.asarray(STACK.W_V[1])
    if method == "svd":
        np.testing.assert_allclose(by_rank.W_V[1], clip(W, rank=3), atol=1e-14)


def test_the_full_rank_changes_nothing():
    same = prune_module(MODEL, STACK, 1, "attn", rank=6)
    np.testing.assert_array_equal(same.W_V, STACK.W_V)


def test_several_names_joined_by_commas_are_one_module():
    new = prune_module(MODEL, STACK, 1, "W_Q,W_V", rank=2)
    ranks = [np.linalg.matrix_rank(getattr(new, n)[1]) for n in ("W_V", "W_K", "W_Q")]
    assert ranks == [2, 6, 2]


def test_exactly_one_of_rate_and_rank():
    for given, got in (({}, "neither"), ({"rate": 0.5, "rank": 2}, "both")):
        with raises(f"rate, rank: expected exactly one of them, got {got}"):
            prune_module(MODEL, STACK, 1, "attn", **given)
    for rates, ranks, got in ((None, None, "neither"), ([0.5], [2], "both")):
        with raises(f"rates, ranks: expected exactly one of them, got {got}"):
            strengths_of(rates, ranks)
    assert strengths_of(None, [2, 4]) == [Rank(2), Rank(4)]
    with raises("ranks: expected at least one, got none"):
        strengths_of(None, [])


def test_impossible_ranks():
    with raises("rank: expected a positive integer, got 0"):
        prune_module(MODEL, STACK, 1, "attn", rank=0)
    with raises("rank: expected 1 <= rank <= 6, got 7"):
        prune_module(MODEL, STACK, 1, "attn", rank=7)
    with raises("method: expected 'svd' or 'whitened' for rank=2, got 'magnitude'"):
        prune_module(MODEL, STACK, 1, "attn", rank=2, method="magnitude")


def test_sweeps_take_ranks_beside_rates():
    common = {"params": STACK, "inputs": INPUTS, "score_args": (TARGETS,)}
    at = (MODEL, 1, "attn")
    by_rate = sweep(*at, [0, 0.5, 0.75], errors, **common)
    by_rank = sweep(*at, None, errors, ranks=[6, 3, 1], **common)
    np.testing.assert_array_equal(by_rank, by_rate)
    grid = sweep_grid(
        MODEL, [1], ["attn", "W_V"], None, errors, ranks=[6, 3, 1], **common
    )
    np.testing.assert_allclose(grid[0, 0], by_rate, rtol=1e-12)
    with raises("rates, ranks: expected exactly one of them, got both"):
        sweep(*at, [0.5], errors, ranks=[3], **common)
    with raises("rates, ranks: expected exactly one of them, got neither"):
        sweep_grid(MODEL, [1], ["attn"], None, errors, **common)
    with raises("rank: expected 1 <= rank <= 6, got 7"):
        sweep(*at, None, errors, ranks=[7], **common)
