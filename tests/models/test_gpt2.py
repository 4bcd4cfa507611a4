"""GPT-2: size, initialisation, causality, and a NumPy forward pass."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.models import GPT2
from tests.kernels.lowering import LOWERING, lowered_for_gpu
from tests.weights import drawn

B, P, D = 3, 5, 4
TINY = {"dim": D, "num_positions": 12, "width": 8, "num_layers": 2, "num_heads": 2}
F64 = {"dtype": jnp.float64, "param_dtype": jnp.float64}
_rng = np.random.default_rng(1)
X, QUERIES = _rng.standard_normal((2, B, P, D))
Y = _rng.standard_normal((B, P))
LAYOUTS = ("interleaved", "matrix", "shifted")


@functools.cache
def build(**kwargs):
    model = GPT2(**{**TINY, **F64, **kwargs})
    return model, drawn(model.init, X, Y)["params"]


@functools.partial(jax.jit, static_argnums=0, static_argnames="method")
def _apply(model, params, *args, method=None):
    return model.apply({"params": params}, *args, method=method)


def apply(*args, **kwargs):
    return np.asarray(_apply(*args, **kwargs))


def count(model, points):
    shapes = jax.eval_shape(
        model.init,
        jax.random.key(0),
        jnp.zeros((1, points, model.dim)),
        jnp.zeros((1, points)),
    )
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))


@pytest.mark.parametrize(
    ("width", "layers", "heads", "expected"),
    [(256, 12, 8, 9_534_977), (128, 6, 4, 1_218_561), (64, 3, 2, 164_417)],
)
def test_parameter_counts_are_gargs(width, layers, heads, expected):
    model = GPT2(20, 202, width, layers, heads)
    assert count(model, 41) == expected


@pytest.mark.slow
def test_initialisation_is_gargs():
    model = GPT2(20, 202, 256, 2, 8)
    args = (jax.random.key(0), jnp.zeros((1, 2, 20)), jnp.zeros((1, 2)))
    params = jax.jit(model.init)(*args)["params"]
    residual = 0.02 / math.sqrt(4)
    expected = {"attn_qkv": 0.02, "attn_out": residual, "mlp_out": residual}
    for name, std in expected.items():
        kernel = np.asarray(params["block_0"][name]["kernel"])
        # The standard error of a standard deviation is std / sqrt(2 n).
        assert abs(kernel.std() - std) < 5 * std / math.sqrt(2 * kernel.size)
        assert not np.any(params["block_0"][name]["bias"])
    for name, fan_in in (("read_in", 20), ("read_out_head", 256)):
        bound = 1 / math.sqrt(fan_in)
        kernel = np.abs(params[name]["kernel"])
        assert 0.9 * bound < kernel.max() <= bound
        assert np.abs(params[name]["bias"]).max() <= bound
    assert abs(np.std(params["positions"]) - 0.02) < 1e-3


@pytest.mark.slow
def test_without_mlp_the_residual_projections_are_half_as_many():
    width, layers = 128, 2
    model = GPT2(4, 12, width, layers, 4, mlp=False)
    params = jax.jit(model.init)(jax.random.key(0), X, Y)["params"]
    assert set(params["block_0"]) == {"ln_1", "attn_qkv", "attn_out"}
    kernels = [params[f"block_{i}"]["attn_out"]["kernel"] for i in range(layers)]
    measured, expected = np.std(kernels), 0.02 / math.sqrt(layers)
    entries = layers * width**2
    assert abs(measured - expected) < 5 * expected / math.sqrt(2 * entries)


def numpy_forward(params, tokens, heads):
    """GPT-2 on one sequence by loops, from the formulas of its paper."""
    p = jax.tree.map(np.asarray, params)

    def dense(layer, h):
        return h @ layer["kernel"] + layer["bias"]

    def norm(layer, h):
        h = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-5)
        return h * layer["scale"] + layer["bias"]

    h = dense(p["read_in"], tokens) + p["positions"][: len(tokens)]
    width = h.shape[1]
    size = width // heads
    layer = 0
    while f"block_{layer}" in p:
        block = p[f"block_{layer}"]
        qkv = dense(block["attn_qkv"], norm(block["ln_1"], h))
        mixed = np.zeros_like(h)
        for head in range(heads):
            cols = slice(head * size, (head + 1) * size)
            q, k, v = (qkv[:, i * width : (i + 1) * width][:, cols] for i in range(3))
            for t in range(len(h)):
                scores = k[: t + 1] @ q[t] / math.sqrt(size)
                weights = np.exp(scores - scores.max())
                mixed[t, cols] = weights @ v[: t + 1] / weights.sum()
        h = h + dense(block["attn_out"], mixed)
        z = dense(block["mlp_in"], norm(block["ln_2"], h))
        z = 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
        h = h + dense(block["mlp_out"], z)
        layer += 1
    return dense(p["read_out_head"], norm(p["ln_f"], h))[:, 0]


def test_forward_equals_a_numpy_loop():
    model, params = build()
    # Larger weights than at the start, so that attention is far from uniform.
    params = jax.tree.map(np.asarray, params)
    params = jax.tree.map(lambda leaf: leaf * 10 if leaf.ndim == 2 else leaf, params)
    got = apply(model, params, X, Y)
    for b in range(B):
        tokens = np.zeros((2 * P, D))
        tokens[::2], tokens[1::2, 0] = X[b], Y[b]
        expected = numpy_forward(params, tokens, heads=2)[::2]
        np.testing.assert_allclose(got[b], expected, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_prediction_k_depends_on_the_first_k_pairs_and_its_query_alone(layout):
    model, params = build(token_layout=layout)
    jacobian = jax.jacobian(
        lambda x, y: model.apply({"params": params}, x[None], y[None])[0], (0, 1)
    )
    jac_x, jac_y = jax.jit(jacobian)(X[0], Y[0])
    seen_x = np.abs(jac_x).sum(-1) > 0
    seen_y = np.abs(jac_y) > 0
    np.testing.assert_array_equal(seen_x, np.tril(np.ones((P, P), bool)))
    np.testing.assert_array_equal(seen_y, np.tril(np.ones((P, P), bool), -1))


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_queries_in_one_pass_equal_one_pass_a_prefix(layout):
    model, params = build(token_layout=layout)
    together = apply(model, params, X, Y, QUERIES)
    for k in range(P):
        swapped = np.array(X)
        swapped[:, k] = QUERIES[:, k]
        alone = apply(model, params, swapped, Y)[:, k]
        np.testing.assert_allclose(together[:, k], alone, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_predict_equals_the_last_prefix(layout):
    model, params = build(token_layout=layout)
    every = apply(model, params, X, Y)
    last = apply(model, params, X[:, :-1], Y[:, :-1], X[:, -1], method="predict")
    np.testing.assert_allclose(last, every[:, -1], rtol=1e-10, atol=1e-13)


@pytest.mark.slow
def test_bfloat16_keeps_float32_parameters_and_answers():
    model = GPT2(**TINY, dtype=jnp.bfloat16)
    args = (X.astype(np.float32), Y.astype(np.float32))
    params = jax.jit(model.init)(jax.random.key(0), *args)["params"]
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(jnp.float32)}
    got = apply(model, params, *args)
    exact = apply(GPT2(**TINY), params, *args)
    assert got.dtype == jnp.float32
    # bfloat16 has 8 bits; the answers are of size one.
    assert 0 < np.abs(got - exact).max() < 0.05


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 3}, "num_heads: expected a divisor of width 8, got 3"),
        ({"token_layout": "rows"}, "token_layout: expected one of"),
        ({"num_positions": 9}, "num_positions: expected at least 10"),
        ({"dim": 3}, "X: expected width 3, got 4"),
        ({"num_layers": 0}, "num_layers: expected a positive integer, got 0"),
    ],
)
def test_bad_settings_are_refused_in_one_line(change, message):
    with pytest.raises(ValueError, match=message) as error:
        build(**change)
    assert "\n" not in str(error.value)


@pytest.mark.slow
@LOWERING
def test_the_kernel_of_attention_is_in_the_program_that_a_gpu_is_given():
    plain, params = build(dtype=jnp.bfloat16, param_dtype=jnp.float32)

    def program(attention):
        model = plain.clone(attention=attention)
        gradient = jax.grad(lambda p, *X: jnp.sum(model.apply({"params": p}, *X)))
        return lowered_for_gpu(gradient, params, X, Y)

    assert "causal_attention_backward" in program("pallas")
    assert "causal_attention" not in program("xla")
