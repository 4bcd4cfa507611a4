"""Remark 5: which layers feel a pruned layer, and how.

Layers before it feel nothing; generically all L - k + 1 layers from it on do (the text
says t > k). "Invariably" is false, and a deep layer is not steadier by this argument.
"""

import jax
import numpy as np
import pytest

from icltheory.constructions import gradient_descent
from icltheory.pruning import Rank, depth_table
from tests import oracles, stacks
from tests.raising import raises

pytestmark = pytest.mark.statement("Yao: Remark 5")

L, N, n = 5, 16, 4
depth_table_jit = jax.jit(depth_table, static_argnames=("module", "strength", "method"))


@pytest.mark.parametrize("module", ["W_V", "W_K", "W_Q"])
def test_remark_5_layers_before_the_pruned_one_are_untouched(module, measured):
    stack, H, _ = stacks.problem(L, N, n)
    table = jax.tree.map(np.asarray, depth_table_jit(stack, H, module, Rank(2)))
    names = "W_V", "W_K", "W_Q"
    for k in range(L):
        W = {name: np.array(getattr(stack, name)) for name in names}
        W[module][k] = oracles.truncate(W[module][k], 2)
        delta_W, G, _ = oracles.trajectory(*W.values(), np.array(H))
        for got, expected in ((table.delta_W, delta_W), (table.G, G)):
            norms = np.linalg.norm(expected, axis=(1, 2))
            np.testing.assert_allclose(got[k], norms, rtol=1e-11)
        # Bit for bit, and not only to rounding.
        np.testing.assert_array_equal(table.delta_W[k, :k], table.delta_W_unpruned[:k])
        np.testing.assert_array_equal(table.G[k, :k], table.G_unpruned[:k])
    t_from_k_on = np.triu(np.ones((L, L), bool))
    np.testing.assert_array_equal(table.changed, t_from_k_on)  # L - k + 1, t = k too
    moved = np.abs(table.delta_W / table.delta_W_unpruned[None] - 1)
    difference = np.abs(table.G - table.G_unpruned[None])
    measured("largest change before the pruned layer", np.tril(difference, -1).max())
    measured("smallest change from it on", moved[t_from_k_on].min())


def gd_prompts(prompts=20):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(prompts, 64, n - 1))
    y = np.einsum("pnd,pd->pn", X, rng.normal(size=(prompts, n - 1)))
    y += 0.3 * rng.normal(size=y.shape)
    return np.concatenate([X, y[..., None]], axis=-1)


def gd_table(module, rank):
    stack = gradient_descent(np.full(L, 0.5), d_in=n - 1)

    def one(H):
        return depth_table(stack, H, module, Rank(rank), scale=1 / 64)

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(gd_prompts()))


def test_remark_5_invariably_is_false_for_gradient_descent(measured):
    """Its value matrix has rank one: pruned to rank one it is what it was."""
    table = gd_table("W_V", 1)
    assert not table.changed.any()
    change = np.abs(table.G / table.G_unpruned[:, None] - 1).max()
    measured("largest change, W_V of rank 1 pruned to rank 1", change)


@pytest.mark.parametrize("module", [pytest.param("W_K", marks=pytest.mark.slow), "W_Q"])
def test_remark_5_pruning_gradient_descent_raises_the_later_gradients(module, measured):
    """The later steps do again the work that the pruned step has left undone."""
    table = gd_table(module, 1)
    ratio = np.mean(table.G / table.G_unpruned[:, None], axis=0)
    for k in range(L):
        before = table.G[:, k, :k], table.G_unpruned[:, :k]
        np.testing.assert_array_equal(*before)
        assert ratio[k, k] < 0.9
        assert (ratio[k, k + 1 :] > 1.1).all()
    measured("ratio of G_1, layer 1 pruned", ratio[0, 0])
    measured("ratio of G_2, layer 1 pruned", ratio[0, 1])
    measured("ratio of the last G, last layer pruned", ratio[-1, -1])


def test_full_rank_changes_nothing_and_rates_are_ranks():
    stack, H, _ = stacks.problem(L, N, n)
    assert not depth_table_jit(stack, H, "W_K", 0).changed.any()
    by_rate, by_rank = (depth_table_jit(stack, H, "W_K", one) for one in (0.5, Rank(2)))
    np.testing.assert_array_equal(by_rate.G, by_rank.G)
    dense = depth_table_jit(stack, H, "W_K", Rank(2), method="dense")
    np.testing.assert_allclose(dense.G, by_rank.G, rtol=1e-11)


def test_bad_input():
    stack, H, _ = stacks.problem(L, N, n)
    with raises("rank: expected 1 <= rank <= 4, got 5"):
        depth_table(stack, H, "W_V", Rank(5))
    with raises("strength: expected a number in [0, 1), got 1"):
        depth_table(stack, H, "W_V", 1)
