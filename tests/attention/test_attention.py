import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from icltheory._core import widened
from icltheory.attention import (
    LinearAttentionStack,
    MLPAttentionStack,
    SoftmaxAttentionStack,
    attended_keys,
    linear_attention,
    mlp_attention,
    normalized_keys,
)
from icltheory.attention._layer import as_tokens
from tests import oracles
from tests.derivatives import slope_error
from tests.raising import raises

MASKS = ("demos", "causal", "none")


def prompt(N, n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, n)), rng.normal(size=n)


def weights(L, n, seed=0, dim1=None, dim2=None):
    """Projections, and MLP matrices if their widths are given."""
    rng = np.random.default_rng(seed)
    dim1 = dim1 or n
    shapes = [(L, dim1, n)] * 3
    if dim2:
        shapes += [(L, dim2, dim1), (L, n, dim2)]
    return tuple(0.4 * rng.normal(size=shape) / n**0.25 for shape in shapes)


@functools.partial(jax.jit, static_argnums=(1, 4))
def layer_jit(stack, index, H, h, mask):
    return stack.layer(index, H, h, mask)


@functools.partial(jax.jit, static_argnames="mask")
def apply_jit(stack, H, h, mask="demos", scale=1.0):
    return stack.apply(H, h, mask, scale=scale)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("mlp", ["gated", "linear", "half"])
def test_mlp_block_equals_the_double_loop(mask, mlp):
    H, h = prompt(5, 3)
    W = [W[0] for W in weights(1, 3, dim1=4, dim2=6)]
    expected = oracles.mlp_layer(*W, np.vstack([H, h]), mask, mlp, scale=0.3)
    out = mlp_attention(*W, H, h, mask=mask, mlp=mlp, scale=0.3)
    np.testing.assert_allclose(np.vstack([out.H, out.h_query]), expected, atol=1e-12)


def stacks(L=3, n=3):
    """One stack of each kind with the layer of its oracle."""
    W, W_mlp = weights(L, n), weights(L, n, dim1=4, dim2=6)
    return {
        "linear": (
            LinearAttentionStack(*W),
            W,
            lambda mask: functools.partial(oracles.linear_layer, mask=mask),
        ),
        "softmax": (
            SoftmaxAttentionStack(*W, d_scale=2.0),
            W,
            lambda mask: functools.partial(
                oracles.softmax_layer, mask=mask, d_scale=2.0
            ),
        ),
        "mlp": (
            MLPAttentionStack(*W_mlp),
            W_mlp,
            lambda mask: functools.partial(oracles.mlp_layer, mask=mask, mlp="gated"),
        ),
    }


@pytest.mark.slow
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", ["linear", "softmax", "mlp"])
def test_stack_keeps_every_depth(kind, mask):
    stack, W, oracle = stacks()[kind]
    H, h = prompt(5, 3)
    out = apply_jit(stack, H, h, mask)
    assert out.H.shape == (4, 5, 3)
    assert out.h_query.shape == (4, 3)
    np.testing.assert_array_equal(np.asarray(out.H)[0], H)
    np.testing.assert_array_equal(np.asarray(out.h_query)[0], h)
    expected = oracles.run_stack(oracle(mask), W, H, h)
    np.testing.assert_allclose(out.H, expected[0], atol=1e-11)
    np.testing.assert_allclose(out.h_query, expected[1], atol=1e-11)
    H, h = np.asarray(out.H), np.asarray(out.h_query)
    one = layer_jit(stack, 1, H[1], h[1], mask)
    np.testing.assert_allclose(one.H, H[2], atol=1e-13)
    np.testing.assert_allclose(one.h_query, h[2], atol=1e-13)


def test_masks_are_what_their_table_says():
    for mask in MASKS:
        expected = [
            [oracles.attends(mask, i, j, 4) for j in range(5)] for i in range(5)
        ]
        np.testing.assert_array_equal(attended_keys(mask, 4), expected)
    full, lower = np.ones((5, 5), bool), np.tril(np.ones((5, 5), bool))
    for mask, keys in zip(MASKS, (full, lower, full), strict=True):
        np.testing.assert_array_equal(normalized_keys(mask, 4), keys)


@pytest.mark.parametrize("kind", ["linear", "softmax", "mlp"])
def test_without_demonstrations_the_output_is_the_input(kind):
    stack = stacks()[kind][0]
    H, h = prompt(0, 3)
    for mask in ("demos", "causal"):
        out = apply_jit(stack, H, h, mask)
        assert out.H.shape == (4, 0, 3)
        np.testing.assert_array_equal(out.h_query, np.tile(h, (4, 1)))
    alone = apply_jit(stack, H, h, "none")  # the query attends to itself
    assert np.abs(np.asarray(alone.h_query)[-1] - h).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "softmax", "mlp"])
def test_gradients_agree_with_finite_differences(kind):
    stack = stacks()[kind][0]
    H, h = prompt(5, 3)

    def loss(stack, H, h):
        last = [stack.apply(H, h, mask, scale=0.5).h_query[-1] for mask in MASKS]
        return sum(jnp.sum(jnp.sin(k + x)) for k, x in enumerate(last))

    # truncation ~ step^2, rounding ~ eps / step: both below 1e-9
    assert abs(slope_error(loss, stack, H, h, step=1e-5)) < 1e-6


def test_gradient_without_demonstrations_is_finite():
    stack = stacks()["softmax"][0]
    H, h = prompt(0, 3)
    gradient = jax.jit(jax.grad(lambda stack: stack.apply(H, h).h_query.sum()))(stack)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient))


def test_dtype_follows_the_input():
    W = [jnp.asarray(W, jnp.float32) for W in weights(2, 3)]
    H, h = (jnp.asarray(x, jnp.float32) for x in prompt(4, 3))
    wide = H.astype(jnp.float64)
    for stack in (LinearAttentionStack(*W), SoftmaxAttentionStack(*W, d_scale=3)):
        for mask in MASKS:
            run = functools.partial(stack.apply, mask=mask, scale=np.float64(0.5))
            for tokens in (H, wide):
                out = jax.eval_shape(run, tokens, h)
                assert out.H.dtype == out.h_query.dtype == tokens.dtype
    run = functools.partial(linear_attention, *(w[0] for w in W), scale=0.5)
    assert jax.eval_shape(run, H, h).h_query.dtype == jnp.float32


def test_bad_weights_say_what_was_expected():
    W, W_in, W_out = np.ones((2, 3, 3)), np.ones((2, 4, 3)), np.ones((2, 3, 4))
    linear, mlp = LinearAttentionStack, functools.partial(MLPAttentionStack, W, W, W)
    mlp(W_in, W_out)  # as wide as 4
    for make, message in (
        (lambda: linear(W_out, W, W), "W_V: expected shape (L, n, n), got (2, 3"),
        (
            lambda: linear(W, np.ones((2, 4, 4)), W),
            "W_K: expected shape (2, 3, 3), got",
        ),
        (lambda: linear(*3 * [W[:0]]), "W_V: expected at least one layer, got L = 0"),
        (
            lambda: mlp(W_in[:, :, :2], W_out),
            "W_in: expected shape (2, dim2, 3), got",
        ),
        (lambda: mlp(W_in, W), "W_out: expected shape (2, 3, 4), got"),
        (lambda: mlp(W, W, mlp="relu"), "mlp: expected one of 'gated', "),
        (
            lambda: SoftmaxAttentionStack(W, W, W[:1], 1),
            "W_Q: expected shape (2, 3, 3)",
        ),
        (lambda: SoftmaxAttentionStack(W, W, W, 0), "d_scale: expected a finite value"),
    ):
        with raises(message):
            make()


def test_bad_tokens_and_masks_say_what_was_expected():
    stack = stacks()["linear"][0]
    H, h = prompt(5, 3)
    W_V, *others = (W[0] for W in weights(1, 3))
    for run, message in (
        (lambda: stack.apply(H[:, :2], h), "H: expected shape (N, 3), got (5, 2)"),
        (lambda: stack.apply(H, h[:2]), "h_query: expected shape (3,), got (2,)"),
        (lambda: stack.layer(-1, H, h), "index: expected 0 <= index <= 2, got -1"),
        (lambda: stack.layer(3, H, h), "index: expected 0 <= index <= 2, got 3"),
        (
            lambda: linear_attention(W_V[:2], *others, H, h),
            "W_V: expected shape (n, n), got (2, 3)",
        ),
        (
            lambda: linear_attention(W_V, *others, H, h, mask="M"),
            "mask: expected one of",
        ),
        *(
            (
                lambda s=s: s.apply(H, h, "padding"),
                "mask: expected one of 'demos', 'causal",
            )
            for s, *_ in stacks().values()
        ),
    ):
        with raises(message):
            run()
    with pytest.raises(TypeCheckError):  # the wrong rank stops at the annotation
        stack.apply(H[0], h)


def test_whole_numbers_become_floats_before_a_scale_is_cast_to_them():
    # of a scale of 1 / N nothing is left in the dtype of integers
    tokens = as_tokens(np.array([[1, 2], [3, 4]]), np.array([1, 1]), 2)
    assert all(array.dtype == jnp.float64 for array in tokens)
    narrow = as_tokens(np.ones((2, 2), np.int32), np.ones(2, np.float32), 2)
    assert all(array.dtype == jnp.float32 for array in narrow)
    assert widened(np.array([1, 2])).dtype == jnp.float64
    assert widened(jnp.ones(2, jnp.bfloat16)).dtype == jnp.float32
