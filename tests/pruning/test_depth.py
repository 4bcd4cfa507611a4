"""When the norms of a layer count as changed."""

import numpy as np
import pytest

from icltheory.attention import LinearAttentionStack
from icltheory.pruning import Rank, depth_table
from tests import oracles


@pytest.mark.parametrize("size", [1e-4, 1.0, 10.0])
def test_changes_are_told_from_rounding_in_any_unit_of_the_tokens(size):
    """Each update of one layer is a square of tokens, whose unit cannot matter."""
    *W, H, _ = oracles.random_problem(1, 16, 4)
    stack = LinearAttentionStack(*W)
    assert depth_table(stack, size * H, "W_K", Rank(2)).changed.all()
    assert not depth_table(stack, size * H, "W_K", 0).changed.any()
    # The SVD of this rank-1 matrix returns it to rounding only.
    one = LinearAttentionStack(np.outer(np.ones(4), np.arange(1, 5) / 3)[None], *W[1:])
    same = depth_table(one, size * H, "W_V", Rank(1))
    assert np.all(same.G != 0)
    assert not same.changed.any()
