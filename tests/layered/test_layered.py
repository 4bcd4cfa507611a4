import dataclasses
import functools
import inspect
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import attention
from icltheory.layered import (
    Batched,
    LayeredModel,
    LayeredStack,
    MatrixSpec,
    all_hidden,
    check_layered,
    check_model,
    forward,
    forward_edited,
    forward_from,
    get_matrix,
    hidden_before,
    replace_matrix,
)
from tests.raising import raises

L, N, n = 3, 5, 4


def draws(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape) / 2)


def stacks():
    W = draws(3, L, n, n)
    yield attention.LinearAttentionStack(*W)
    yield attention.SoftmaxAttentionStack(*W, d_scale=n)
    yield attention.MLPAttentionStack(*W, draws(L, 6, n), draws(L, n, 6))


# A small transformer block in Flax, with the usual nested dict of kernels.
WIDTH, HEADS = 6, 2


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm(name="ln_1")(x)
        fused = nn.Dense(3 * WIDTH, name="qkv")(y)
        q, k, v = jnp.split(fused.reshape(len(x), HEADS, -1), 3, axis=-1)
        a = nn.softmax(jnp.einsum("qhd,khd->hqk", q, k))
        mixed = jnp.einsum("hqk,khd->qhd", a, v)
        x = x + nn.DenseGeneral(WIDTH, axis=(-2, -1), name="out")(mixed)
        y = nn.relu(nn.Dense(4 * WIDTH, name="fc")(nn.LayerNorm(name="ln_2")(x)))
        return x + nn.Dense(WIDTH, name="proj")(y)


@dataclasses.dataclass(frozen=True)
class FlaxModel:
    num_layers: int

    def embed(self, params, inputs):
        return inputs @ params["embed"]

    def block(self, layer, params, hidden):
        return Block().apply({"params": params[f"h_{layer}"]}, hidden)

    def read_out(self, params, hidden):
        return hidden @ params["embed"].T

    def matrices(self, layer):
        def path(name):
            return (f"h_{layer}", name, "kernel")

        return (
            MatrixSpec("W_O", "attn", path("out"), True, shape=(WIDTH, WIDTH)),
            MatrixSpec("W_in", "mlp", path("fc"), True),
            MatrixSpec("W_out", "mlp", path("proj"), True),
        )


@pytest.fixture(scope="module")
def flax_model():
    x, rng = draws(7, WIDTH), np.random.default_rng(4)
    params = {"embed": draws(3, WIDTH, seed=3)}
    shapes = jax.eval_shape(Block().init, jax.random.key(0), x)["params"]

    def draw(path, s):  # biases are zero
        size = 0.4 * (path[-1].key != "bias")
        return jnp.asarray((size * rng.normal(size=s.shape)).astype(s.dtype))

    for layer in range(L):
        params[f"h_{layer}"] = jax.tree.map_with_path(draw, shapes)
    return FlaxModel(L), params, draws(7, 3, seed=1)


@functools.partial(jax.jit, static_argnums=0)
def run_whole_and_from_everywhere(model, params, inputs):
    states = all_hidden(model, params, inputs)
    resumed = [forward_from(model, params, x, l) for l, x in enumerate(states)]
    before = [hidden_before(model, params, inputs, l) for l in range(len(states))]
    return forward(model, params, inputs), states, resumed, before


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["demos", "causal", "none"])
def test_forward_of_a_stack_is_its_last_depth(mask):
    inputs = draws(N, n), draws(n)
    for stack in stacks() if mask == "causal" else [next(stacks())]:
        model = LayeredStack.of(stack, mask=mask, scale=0.5)
        out, states, *_ = run_whole_and_from_everywhere(model, stack, inputs)
        expected = jax.jit(lambda stack: stack.apply(*inputs, mask, scale=0.5))(stack)
        np.testing.assert_allclose(out, expected.h_query[-1], atol=1e-14)
        for depth, hidden in enumerate(states):
            np.testing.assert_allclose(hidden.H, expected.H[depth], atol=1e-14)


@pytest.mark.slow
def test_resuming_from_a_cached_state_is_the_forward_pass(flax_model):
    stack = next(stacks())
    tokens = draws(N, n), draws(n)
    for case in ((LayeredStack.of(stack), stack, tokens), flax_model):
        out, states, resumed, before = run_whole_and_from_everywhere(*case)
        assert len(states) == case[0].num_layers + 1
        for layer, hidden in enumerate(states):
            np.testing.assert_allclose(resumed[layer], out, atol=1e-14)
            jax.tree.map(np.testing.assert_array_equal, before[layer], hidden)


def test_edits_change_the_hidden_state_at_their_depths():
    stack = next(stacks())
    model, inputs = LayeredStack.of(stack, scale=0.5), (draws(N, n), draws(n))

    def moved(by):
        return lambda state: state._replace(h_query=state.h_query + by)

    @jax.jit
    def run(stack, by):
        edits = {np.int64(1): moved(by), L: moved(-by)}
        # NumPy's integer is no ``int``, which the tests' checks of annotations want.
        edited = inspect.unwrap(forward_edited)(model, stack, inputs, edits)
        state = moved(by)(hidden_before(model, stack, inputs, 1))
        none = forward_edited(model, stack, inputs, {})
        return (
            edited,
            forward_from(model, stack, state, 1) - by,
            none,
            forward(model, stack, inputs),
        )

    by = draws(n, seed=9)
    edited, expected, none, whole = run(stack, by)
    np.testing.assert_allclose(edited, expected, atol=1e-14)
    np.testing.assert_array_equal(none, whole)
    # The blocks between the two edits read the change.
    assert np.abs(edited - whole).max() > 1e-3


@pytest.mark.parametrize("depth", [-1, L + 1])
def test_edits_at_depths_that_do_not_exist_are_refused(depth):
    stack = next(stacks())
    with raises(f"edits: expected depths from 0 to {L}, got {depth!r}"):
        forward_edited(
            LayeredStack.of(stack), stack, (draws(N, n), draws(n)), {depth: lambda h: h}
        )


@pytest.mark.slow
def test_a_batched_model_runs_every_prompt():
    stack = next(stacks())
    one = LayeredStack.of(stack, mask="causal")
    model = Batched(one)
    assert isinstance(model, LayeredModel)
    assert model == Batched(LayeredStack.of(stack, mask="causal"))
    assert isinstance(hash(model), int)
    prompts = draws(2, N, n), draws(2, n, seed=1)
    out, states, resumed, _ = run_whole_and_from_everywhere(model, stack, prompts)
    assert states[1].H.shape == (2, N, n)
    for i in range(2):
        alone = run_whole_and_from_everywhere(one, stack, [x[i] for x in prompts])[0]
        np.testing.assert_allclose(out[i], alone, atol=1e-14)
        np.testing.assert_allclose(resumed[2][i], alone, atol=1e-14)
    assert model.matrices(1) == one.matrices(1)
    with raises("layer: expected 0 to 2, got 3"):
        model.matrices(3)


def test_matrices_of_a_stack_are_slices_in_the_form_of_the_papers():
    for stack in stacks():
        model = LayeredStack.of(stack)
        groups = {spec.name: spec.group for spec in model.matrices(1)}
        assert list(groups)[:3] == ["W_V", "W_K", "W_Q"]
        assert {m for m in groups if groups[m] == "mlp"} == {*list(groups)[3:]}
        for spec in model.matrices(1):
            if getattr(stack, spec.name).ndim == 4:  # of several heads
                continue
            np.testing.assert_array_equal(
                get_matrix(stack, spec), getattr(stack, spec.name)[1]
            )


def test_flax_kernels_are_read_as_out_in(flax_model):
    model, params, inputs = flax_model
    hidden = model.embed(params, inputs)
    W_O, W_in, W_out = (get_matrix(params, spec) for spec in model.matrices(0))
    assert W_in.shape == (4 * WIDTH, WIDTH)
    layer = params["h_0"]
    y = nn.Dense(4 * WIDTH).apply({"params": layer["fc"]}, hidden)
    np.testing.assert_allclose(hidden @ W_in.T, y, atol=1e-12)  # biases start at 0
    heads = hidden.reshape(7, HEADS, -1)
    out = nn.DenseGeneral(WIDTH, axis=(-2, -1)).apply({"params": layer["out"]}, heads)
    np.testing.assert_allclose(hidden @ W_O.T, out, atol=1e-12)
    assert W_out.shape == (WIDTH, 4 * WIDTH)


@pytest.mark.slow
def test_replacing_a_matrix_touches_nothing_else(flax_model):
    stack = next(stacks())
    cases = [(LayeredStack.of(stack), stack), flax_model[:2]]
    for model, params in cases:
        copy = jax.tree.map(np.array, params)
        for spec in model.matrices(1):
            W = get_matrix(params, spec)
            same = replace_matrix(params, spec, W)
            jax.tree.map(np.testing.assert_array_equal, same, params)
            new = replace_matrix(params, spec, 2 * W)
            np.testing.assert_array_equal(get_matrix(new, spec), 2 * W)
            assert jax.tree.structure(new) == jax.tree.structure(params)
            for other in (*model.matrices(0), *model.matrices(1), *model.matrices(2)):
                if other != spec:
                    np.testing.assert_array_equal(
                        get_matrix(new, other), get_matrix(params, other)
                    )
        jax.tree.map(np.testing.assert_array_equal, params, copy)


def test_rows_of_a_fused_kernel():
    params = {"c_attn": {"kernel": draws(n, 3 * n), "bias": draws(3 * n)}, "x": [1.0]}
    path = ("c_attn", "kernel")
    specs = [
        MatrixSpec(name, "attn", path, transposed=True, rows=(i * n, (i + 1) * n))
        for i, name in enumerate(["W_Q", "W_K", "W_V"])
    ]
    kernel = params["c_attn"]["kernel"]
    x = draws(n, seed=2)
    for i, spec in enumerate(specs):
        W = get_matrix(params, spec)
        np.testing.assert_allclose(W @ x, (x @ kernel)[i * n : (i + 1) * n], atol=1e-15)
    new = replace_matrix(params, specs[1], np.zeros((n, n)))
    np.testing.assert_array_equal(get_matrix(new, specs[1]), 0)
    for spec in (specs[0], specs[2]):
        np.testing.assert_array_equal(get_matrix(new, spec), get_matrix(params, spec))


@pytest.mark.slow
def test_replaced_matrices_keep_the_stored_dtype_and_pass_gradients():
    params = {"kernel": jnp.ones((2, 3), jnp.bfloat16)}
    spec = MatrixSpec("W_in", "mlp", ("kernel",), transposed=True)
    new = replace_matrix(params, spec, np.zeros((3, 2)))
    assert new["kernel"].dtype == jnp.bfloat16
    stack, inputs = next(stacks()), (draws(N, n), draws(n))
    model = LayeredStack.of(stack)
    spec = model.matrices(1)[0]

    def loss(W):
        return forward(model, replace_matrix(stack, spec, W), inputs).sum()

    by_matrix = jax.jit(jax.grad(loss))(get_matrix(stack, spec))
    whole = jax.jit(jax.grad(lambda stack: forward(model, stack, inputs).sum()))(stack)
    np.testing.assert_allclose(by_matrix, whole.W_V[1], rtol=1e-12)


def test_bad_input_says_what_was_expected():
    stack, inputs = next(stacks()), (draws(N, n), draws(n))
    model, first = LayeredStack.of(stack), ("W_V", 0)
    beyond = MatrixSpec("W_V", "attn", ("W_V", 3))  # JAX would read the last layer
    outside = "path: expected indices into a leaf of params, of shape (3, 4, 4)"
    integers, spec = {"k": np.zeros((4, 4), int)}, MatrixSpec("W_in", "mlp", ("k",))
    lost = "path: expected the path of a leaf of params, a LinearAttentionStack, got"

    def rows(*ends):
        return get_matrix(stack, MatrixSpec("W_V", "attn", first, rows=ends))

    for message, run in (
        (
            "layer: expected 0 to 3, got 4",
            lambda: forward_from(model, stack, inputs, 4),
        ),
        (
            "layer: expected 0 to 3, got 4",
            lambda: hidden_before(model, stack, inputs, 4),
        ),
        ("layer: expected 0 to 2, got 3", lambda: model.matrices(3)),
        (
            "mask: expected one of 'demos', 'causal', 'none', got 'M'",
            lambda: LayeredStack.of(stack, mask="M"),
        ),
        (
            "group: expected one of 'attn', 'mlp', 'ends', got 'norm'",
            lambda: MatrixSpec("W", "norm", first),
        ),
        (lost, lambda: get_matrix(stack, MatrixSpec("W_X", "attn", ("W_X", 0)))),
        (outside, lambda: get_matrix(stack, beyond)),
        (outside, lambda: replace_matrix(stack, beyond, np.eye(4))),
        ("rows: expected 0 <= first < last <= 4, got (2, 5)", lambda: rows(2, 5)),
        ("rows: expected 0 <= first < last <= 4, got (2, 2)", lambda: rows(2, 2)),
        (
            "W_V: expected a matrix, got shape (3, 4, 4)",
            lambda: get_matrix(stack, MatrixSpec("W_V", "attn", ("W_V",))),
        ),
        (
            "W_in: expected floating weights, got int",
            lambda: get_matrix(integers, spec),
        ),
        (
            "W_in: expected floating weights, got int",
            lambda: replace_matrix(integers, spec, np.full((4, 4), 1.5)),
        ),
        (
            "W_V: expected shape (4, 4), got (4, 3)",
            lambda: replace_matrix(stack, model.matrices(0)[0], np.ones((4, 3))),
        ),
        (
            "H: expected shape (N, 4), got (5, 3)",
            lambda: forward(model, stack, (draws(N, 3), draws(n))),
        ),
    ):
        with raises(message):
            run()


class Partial:
    """A model that lacks what the protocol asks for, or has it wrong."""

    num_layers = 1

    def __init__(self, **parts):
        for name, part in parts.items():
            setattr(self, name, part)


def complete(**changes):
    """A model of one matrix, with parts replaced."""
    spec = MatrixSpec("W", "mlp", ("W",))
    parts = {
        "embed": lambda params, inputs: inputs,
        "block": lambda layer, params, hidden: hidden @ params["W"].T,
        "read_out": lambda params, hidden: hidden,
        "matrices": lambda layer: (spec,),
    }
    return Partial(**(parts | changes))


def test_a_model_of_ones_own_is_checked_part_by_part():
    params, inputs = {"W": jnp.eye(3)}, jnp.ones((2, 3))
    check_model(complete(), params, inputs)
    spec = MatrixSpec("W", "mlp", ("W",))
    lost = MatrixSpec("V", "mlp", ("V",))
    for model, message in (
        (Partial(), "got Partial without block, embed, matrices, read_out"),
        (complete(matrices=lambda layer: (spec, spec)), "distinct names of matrices"),
        (complete(num_layers=0), "model.num_layers: expected a positive integer"),
        (complete(matrices=lambda layer: (lost,)), "V"),
        (complete(block=lambda layer, params, h: h @ jnp.ones(5)), "block(0, ...)"),
        (complete(read_out=lambda params: params), "expected read_out to run"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            check_model(model, params, inputs)
    for wrong in ([], 3):
        with pytest.raises(ValueError, match="model: expected a layered model"):
            check_layered(wrong)

    @dataclasses.dataclass
    class Unhashable(Partial):
        pass

    model = Unhashable()
    vars(model).update(vars(complete()))
    with pytest.raises(
        ValueError, match="expected a hashable model, got an unhashable"
    ):
        check_layered(model)
    with pytest.raises(ValueError, match="W: expected floating weights, got int"):
        check_model(complete(), {"W": jnp.eye(3, dtype=int)}, inputs)
