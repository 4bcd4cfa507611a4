"""GPT-2 in the layered protocol: whole, resumed, and its matrices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.layered import (
    LayeredModel,
    forward,
    forward_from,
    get_matrix,
    hidden_before,
    replace_matrix,
)
from icltheory.models import GPT2, LayeredGPT2
from tests.weights import drawn

B, P, D = 2, 4, 3
_rng = np.random.default_rng(1)
X, Q = _rng.standard_normal((2, B, P, D)).astype(np.float32)
Y = _rng.standard_normal((B, P)).astype(np.float32)
_SIZES = {"dim": D, "num_positions": 8, "width": 8, "num_layers": 3, "num_heads": 2}
MODULE = GPT2(**_SIZES)
MODEL = LayeredGPT2(MODULE)


@pytest.fixture(scope="module")
def params():
    return drawn(MODULE.init, X, Y)["params"]


@pytest.mark.parametrize(
    "inputs", [(X, Y), pytest.param((X, Y, Q), marks=pytest.mark.slow)]
)
def test_whole_and_resumed_equal_the_module(inputs, params):
    expected = jax.jit(MODULE.apply)({"params": params}, *inputs)
    whole = jax.jit(functools.partial(forward, MODEL))(params, inputs)
    np.testing.assert_array_equal(whole, expected)

    def resumed(params, inputs):
        hidden = hidden_before(MODEL, params, inputs, 2)
        return forward_from(MODEL, params, hidden, 2)

    np.testing.assert_allclose(
        jax.jit(resumed)(params, inputs), expected, rtol=1e-5, atol=1e-6
    )
    assert isinstance(MODEL, LayeredModel)


def test_matrices_are_in_the_papers_orientation(params):
    h = np.random.default_rng(3).standard_normal(8).astype(np.float32)
    kernels = jax.tree.map(np.asarray, params["block_1"])
    found = {
        spec.name: np.asarray(get_matrix(params, spec)) for spec in MODEL.matrices(1)
    }
    qkv = h @ kernels["attn_qkv"]["kernel"]
    for part, name in enumerate(("W_Q", "W_K", "W_V")):
        expected = qkv[part * 8 : (part + 1) * 8]
        np.testing.assert_allclose(found[name] @ h, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        found["W_in"] @ h, h @ kernels["mlp_in"]["kernel"], rtol=1e-4, atol=1e-6
    )
    assert found["W_out"].shape == (8, 32)


def test_replacing_the_queries_leaves_keys_and_values(params):
    specs = {spec.name: spec for spec in MODEL.matrices(0)}
    new = replace_matrix(params, specs["W_Q"], jnp.zeros((8, 8)))
    assert not np.any(get_matrix(new, specs["W_Q"]))
    for name in ("W_K", "W_V", "W_O"):
        before, after = get_matrix(params, specs[name]), get_matrix(new, specs[name])
        np.testing.assert_array_equal(before, after)


@pytest.mark.slow
def test_the_last_question_alone_is_the_modules_prediction():
    module = GPT2(**(_SIZES | {"token_layout": "matrix"}))
    model = LayeredGPT2(module, last_only=True)
    params = drawn(module.init, X, Y)["params"]
    answers = jax.jit(functools.partial(forward, model))(params, (X, Y))
    asked = tuple(map(jnp.asarray, (X[:, :-1], Y[:, :-1], X[:, -1])))
    expected = module.apply({"params": params}, *asked, method="predict")
    np.testing.assert_allclose(answers[:, 0], expected, rtol=1e-5, atol=1e-6)
    assert answers.shape == (B, 1)


def test_a_layer_out_of_range_is_refused():
    with pytest.raises(ValueError, match="layer: expected 0 to 2, got 3"):
        MODEL.matrices(3)
