import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from icltheory._core import widened
from icltheory.attention import (
    LinearAttentionStack,
    LinearTransformerStack,
    SoftmaxAttentionStack,
    attended_keys,
    linear_attention,
    mlp_attention,
    normalized_keys,
    softmax_attention,
    softmax_weights,
)
from icltheory.attention._layer import as_tokens
from tests import oracles
from tests.raising import raises

MASKS = ("demos", "causal", "none")
SIZES = [(1, 3), (5, 3)]  # N, n; N = 0 has its own tests


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


linear_jit = jax.jit(linear_attention, static_argnames="mask")
softmax_jit = jax.jit(softmax_attention, static_argnames="mask")
mlp_jit = jax.jit(mlp_attention, static_argnames=("mask", "mlp"))


@functools.partial(jax.jit, static_argnums=(1, 4))
def layer_jit(stack, index, H, h, mask):
    return stack.layer(index, H, h, mask)


@functools.partial(jax.jit, static_argnames="mask")
def apply_jit(stack, H, h, mask="demos", scale=1.0):
    return stack.apply(H, h, mask, scale=scale)


@pytest.mark.statement("Yao: Eq. (3)")
@settings(max_examples=30, deadline=None)
@given(
    size=st.sampled_from(SIZES),
    mask=st.sampled_from(MASKS),
    seed=st.integers(0, 2**32),
    scale=st.sampled_from([1.0, 0.2]),
)
def test_linear_layer_equals_the_double_loop(size, mask, seed, scale):
    H, h = prompt(*size, seed)
    W = [W[0] for W in weights(1, size[1], seed)]
    expected = oracles.linear_layer(*W, np.vstack([H, h]), mask, scale)
    out = linear_jit(*W, H, h, mask=mask, scale=scale)
    np.testing.assert_allclose(np.vstack([out.H, out.h_query]), expected, atol=1e-12)


@pytest.mark.statement("Yao: Eq. (1)")
@settings(max_examples=30, deadline=None)
@given(
    size=st.sampled_from(SIZES),
    mask=st.sampled_from(MASKS),
    seed=st.integers(0, 2**32),
)
def test_softmax_layer_equals_the_double_loop(size, mask, seed):
    H, h = prompt(*size, seed)
    W = [W[0] for W in weights(1, size[1], seed)]
    tokens = np.vstack([H, h])
    expected = oracles.softmax_layer(*W, tokens, mask, d_scale=2.0, scale=0.7)
    out = softmax_jit(*W, H, h, mask=mask, d_scale=2.0, scale=0.7)
    np.testing.assert_allclose(np.vstack([out.H, out.h_query]), expected, atol=1e-12)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("mlp", ["gated", "linear", "half"])
def test_mlp_block_equals_the_double_loop(mask, mlp):
    H, h = prompt(5, 3)
    W = [W[0] for W in weights(1, 3, dim1=4, dim2=6)]
    expected = oracles.mlp_layer(*W, np.vstack([H, h]), mask, mlp, scale=0.3)
    out = mlp_jit(*W, H, h, mask=mask, mlp=mlp, scale=0.3)
    np.testing.assert_allclose(np.vstack([out.H, out.h_query]), expected, atol=1e-12)


def stacks(L=3, n=3):
    """One stack of each kind with the layer of its oracle."""
    W = weights(L, n)
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
    }


@pytest.mark.slow
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", ["linear", "softmax"])
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


@pytest.mark.statement("Yao: Eq. (1)")
def test_softmax_weights_on_the_demonstrations_sum_to_less_than_one():
    H, h = prompt(5, 3)
    W = [W[0] for W in weights(1, 3)]
    weigh = jax.jit(softmax_weights, static_argnames="mask")
    masked = np.asarray(weigh(W[1], W[2], H, h, d_scale=3.0))
    full = np.asarray(weigh(W[1], W[2], H, h, d_scale=3.0, mask="none"))
    np.testing.assert_allclose(full.sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(1 - masked.sum(axis=1), full[:, -1], rtol=1e-12)
    assert float(full[:, -1].min()) > 0.01
    np.testing.assert_array_equal(masked[:, -1], 0)


@pytest.mark.parametrize("kind", ["linear", "softmax"])
def test_without_demonstrations_the_output_is_the_input(kind):
    stack = stacks()[kind][0]
    H, h = prompt(0, 3)
    for mask in ("demos", "causal"):
        out = apply_jit(stack, H, h, mask)
        assert out.H.shape == (4, 0, 3)
        np.testing.assert_array_equal(out.h_query, np.tile(h, (4, 1)))
    alone = apply_jit(stack, H, h, "none")  # the query attends to itself
    assert np.abs(np.asarray(alone.h_query)[-1] - h).max() > 1e-3


def test_masked_tokens_do_not_feel_the_query():
    H, h = prompt(5, 3)

    def change(stack, mask):
        both = (np.asarray(apply_jit(stack, H, q, mask).H) for q in (h, 2 * h))
        return np.subtract(*both)

    stack = stacks()["linear"][0]
    for mask in ("demos", "causal"):
        np.testing.assert_array_equal(change(stack, mask), 0)
    assert np.abs(change(stack, "none")).max() > 1e-2
    # M stands outside the softmax, so the normaliser still knows the query
    stack = stacks()["softmax"][0]
    assert np.abs(change(stack, "demos")).max() > 1e-3


@pytest.mark.slow
def test_stack_is_a_pytree_that_jits_once_and_vmaps():
    traces = []

    @jax.jit
    def run(stack, H, h, scale):
        traces.append(1)
        return stack.apply(H, h, scale=scale).h_query

    H, h = prompt(5, 3)
    for seed in range(3):
        one = LinearAttentionStack(*weights(3, 3, seed))
        run(one, H + seed, h, 0.1 * seed)
    assert len(traces) == 1

    stack = LinearAttentionStack(*weights(3, 3))
    prompts = [prompt(5, 3, seed) for seed in range(4)]
    H, h = map(np.stack, zip(*prompts, strict=True))
    batched = jax.jit(jax.vmap(LinearAttentionStack.apply, (None, 0, 0)))(stack, H, h)
    single = apply_jit(stack, H[2], h[2]).h_query
    np.testing.assert_allclose(np.asarray(batched.h_query)[2], single, atol=1e-13)
    doubled = jax.tree.map(lambda W: 2 * np.asarray(W), stack)
    both = jax.tree.map(lambda *W: np.stack(W), stack, doubled)
    over = jax.jit(jax.vmap(LinearAttentionStack.apply, (0, None, None)))
    np.testing.assert_allclose(
        np.asarray(over(both, H[0], h[0]).h_query)[1],
        apply_jit(doubled, H[0], h[0]).h_query,
        rtol=1e-12,
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "softmax"])
def test_gradients_agree_with_finite_differences(kind):
    stack = stacks()[kind][0]
    H, h = prompt(5, 3)

    @jax.jit
    def loss(stack, H, h):
        last = [stack.apply(H, h, mask, scale=0.5).h_query[-1] for mask in MASKS]
        return sum(jnp.sum(jnp.sin(k + x)) for k, x in enumerate(last))

    args = jax.tree.map(np.asarray, (stack, H, h))
    rng = np.random.default_rng(1)
    tangent = jax.tree.map(lambda x: rng.normal(size=x.shape), args)
    step = 1e-5

    def at(sign):
        return loss(*jax.tree.map(lambda x, d: x + sign * step * d, args, tangent))

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(*args)
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(tangent), strict=True)
    derivative = sum(np.sum(np.asarray(g) * np.asarray(d)) for g, d in pairs)
    # truncation ~ step^2, rounding ~ eps / step: both below 1e-9
    np.testing.assert_allclose(derivative, (at(1) - at(-1)) / (2 * step), rtol=1e-6)


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
    W = np.ones((2, 3, 3))
    with pytest.raises(
        ValueError, match=r"^W_V: expected shape \(L, n, n\), got \(2, 3"
    ):
        LinearAttentionStack(np.ones((2, 3, 4)), W, W)
    with pytest.raises(
        ValueError, match=r"^W_K: expected shape \(2, 3, 3\), got \(2, 4"
    ):
        LinearAttentionStack(W, np.ones((2, 4, 4)), W)
    with pytest.raises(
        ValueError, match=r"^W_Q: expected shape \(2, 3, 3\), got \(1, 3"
    ):
        SoftmaxAttentionStack(W, W, W[:1], d_scale=1)
    with pytest.raises(
        ValueError, match=r"^W_V: expected at least one layer, got L = 0"
    ):
        LinearAttentionStack(W[:0], W[:0], W[:0])
    heads = (W[:, None],) * 3
    with raises("W_in: expected shape (2, hidden, 3), got"):
        LinearTransformerStack(*heads, np.ones((2, 4, 5)), np.ones((2, 3, 4)))
    with raises("W_out: expected shape (2, 3, 4), got"):
        LinearTransformerStack(*heads, np.ones((2, 4, 3)), np.ones((2, 3, 3)))
    with raises("mlp: expected one of 'gated', 'linear', "):
        LinearTransformerStack(*heads, W, W, mlp="relu")
    with raises("d_scale: expected a finite value > 0, got 0"):
        SoftmaxAttentionStack(W, W, W, d_scale=0)


def test_bad_tokens_and_masks_say_what_was_expected():
    stack = stacks()["linear"][0]
    H, h = prompt(5, 3)
    with raises("H: expected shape (N, 3), got (5, 2)"):
        stack.apply(H[:, :2], h)
    with pytest.raises(
        ValueError, match=r"^h_query: expected shape \(3,\), got \(2,\)"
    ):
        stack.apply(H, h[:2])
    for run in (stack.apply, stacks()["softmax"][0].apply):
        with pytest.raises(
            ValueError, match=r"^mask: expected one of 'demos', 'causal"
        ):
            run(H, h, "padding")
    for index in (-1, 3):
        with raises(f"index: expected 0 <= index <= 2, got {index}"):
            stack.layer(index, H, h)
    W = [W[0] for W in weights(1, 3)]
    with raises("mask: expected one of"):
        linear_attention(*W, H, h, mask="M")
    with pytest.raises(
        ValueError, match=r"^W_V: expected shape \(n, n\), got \(2, 3\)"
    ):
        linear_attention(W[0][:2], W[1], W[2], H, h)
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
