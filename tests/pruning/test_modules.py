import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.attention import LinearAttentionStack, MLPAttentionStack
from icltheory.layered import LayeredStack, get_matrix
from icltheory.linalg import SVD
from icltheory.pruning import (
    Intervention,
    LowRank,
    Magnitude,
    Whitened,
    module_matrices,
    prune,
    prune_model,
)
from icltheory.pruning.methods import _first
from tests.pruning.models import MODEL, RATES, STACK, draws
from tests.raising import raises


def test_names_of_modules():
    W = draws(3, 2, 4, 4)
    stack = MLPAttentionStack(*W, draws(2, 6, 4), draws(2, 4, 6))
    model = LayeredStack.of(stack)

    def names(module):
        return [spec.name for spec in module_matrices(model, 1, module)]

    assert names("attn") == ["W_V", "W_K", "W_Q"]
    assert names("mlp") == ["W_in", "W_out"]
    assert names("all") == names("attn") + names("mlp")
    assert names("W_in") == ["W_in"]


METHODS = pytest.mark.parametrize("method", [LowRank(), Magnitude(), Whitened()])


@METHODS
def test_every_matrix_of_the_module_is_pruned_and_no_other(method):
    for module, names in (("attn", ("W_V", "W_K", "W_Q")), ("W_K", ("W_K",))):
        new = prune_model(MODEL, STACK, Intervention(2, module, 0.5), method=method)
        for layer in range(MODEL.num_layers):
            for spec in MODEL.matrices(layer):
                W = get_matrix(STACK, spec)
                pruned = layer == 2 and spec.name in names
                expected = prune(W, 0.5, method=method) if pruned else W
                got = get_matrix(new, spec)
                if pruned and method.spectral:
                    np.testing.assert_allclose(got, expected, atol=1e-14)
                else:
                    np.testing.assert_array_equal(got, expected)


@METHODS
def test_rate_zero_is_bit_for_bit(method):
    same = prune_model(MODEL, STACK, "1:all:0", method=method)
    jax.tree.map(np.testing.assert_array_equal, same, STACK)


def test_nested_truncation_is_direct_and_descending_order_is_not():
    """The released code edits in place over ascending rates; order matters."""
    ascending = descending = STACK
    for rate in RATES:
        ascending = prune_model(MODEL, ascending, Intervention(1, "attn", rate))
        direct = prune_model(MODEL, STACK, Intervention(1, "attn", rate))
        np.testing.assert_allclose(ascending.W_V, direct.W_V, atol=1e-14)
    for rate in RATES[::-1]:
        descending = prune_model(MODEL, descending, Intervention(1, "attn", rate))
    assert np.linalg.matrix_rank(descending.W_V[1], tol=1e-10) == 1
    assert (
        jnp.abs(descending.W_V - STACK.W_V).max() > 0.1
    )  # although the last rate is 0


@pytest.mark.usefixtures("as_for_a_user")
def test_bad_input():
    with raises("layer: expected 0 to 3, got 4"):
        module_matrices(MODEL, 4, "attn")
    with raises(
        "module: expected one of 'all', 'attn', 'W_V', 'W_K', 'W_Q', got 'mlp'"
    ):
        prune_model(MODEL, STACK, "0:mlp:0.5")
    with raises("method: expected a Method, got 'random'"):
        prune_model(MODEL, STACK, "0:attn:0.5", method="random")
    with raises("rate: expected a rate that leaves a rank >= 1 of 6, got 0.9"):
        prune_model(MODEL, STACK, "0:attn:0.9")
    bad = LinearAttentionStack(STACK.W_V, STACK.W_K.at[1, 0, 0].set(jnp.inf), STACK.W_Q)
    prune_model(MODEL, bad, "0:attn:0.5")
    with raises("W_K: expected finite entries, got "):
        prune_model(MODEL, bad, "1:attn:0.5")


@pytest.mark.parametrize(
    ("rank", "size"),
    [(0, 256), (1, 256), (256, 256), (257, 512), (600, 600), (601, 600)],
)
def test_a_cut_keeps_the_directions_of_its_rank_rounded_up(rank, size):
    parts = SVD(jnp.zeros((2, 600)), jnp.zeros(600), jnp.zeros((600, 3)))
    kept = _first(parts, rank)
    assert (kept.U.shape, kept.s.shape, kept.Vt.shape) == (
        (2, size),
        (size,),
        (size, 3),
    )
