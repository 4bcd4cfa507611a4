"""Packed blocks train as the model's own layout does."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import training
from icltheory.models import GPT2
from icltheory.regression import LinearPopulation
from icltheory.training import Curriculum, OptimizerConfig
from icltheory.training.packing import Packed, pack, unpack

TASK = LinearPopulation.isotropic(2, dtype=jnp.float64)
MODEL = GPT2(
    dim=2,
    num_positions=8,
    width=4,
    num_layers=2,
    num_heads=1,
    dtype=jnp.float64,
    param_dtype=jnp.float64,
)
OPTIMIZERS = {
    "adam": OptimizerConfig("adam", 1e-2),
    "muon": OptimizerConfig("muon", 1e-2, clip_norm=1.0, weight_decay=0.1),
}
RULES = OPTIMIZERS | {
    "adamw": OptimizerConfig("adamw", 1e-2, clip_norm=0.5, weight_decay=0.1),
    "sgd": OptimizerConfig("sgd", 1e-2, clip_norm=0.5),
}


def started(config, seeds=0):
    optimizer = training.make_optimizer(config, 6)
    step = training.make_step(
        MODEL,
        TASK,
        optimizer,
        Curriculum.none(2, 4),
        batch_size=4,
        num_points=4,
        halves=False,
    )
    state = training.init_state(MODEL, TASK, optimizer, seeds, num_points=4)
    return (jax.vmap(step) if jnp.ndim(state.step) else step), state


@functools.cache
def trained_whole(name, packed, seeds=0):
    return jax.device_get(trained(OPTIMIZERS[name], packed, seeds))


def trained(config, packed, seeds=0, chunk_steps=6):
    step, state = started(config, seeds)
    for chunk in training.run(step, state, 6, chunk_steps=chunk_steps, packed=packed):
        state = chunk.state
    return state


def close(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        # The same sums in another order, a few steps on.
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seeds"), [("adam", 0), ("muon", (3, 4))])
def test_packed_training_is_plain_training(name, seeds):
    close(trained_whole(name, True, seeds), trained_whole(name, False, seeds))


@pytest.mark.slow
def test_a_packed_run_goes_on_from_a_chunk_that_ended():
    once = trained_whole("adam", True)
    twice = trained(OPTIMIZERS["adam"], True, chunk_steps=3)
    jax.tree.map(np.testing.assert_array_equal, once, twice)


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_an_update_of_packed_blocks_is_the_packed_update(name):
    # More than ten blocks: as text block_10 comes before block_2.
    rng = np.random.default_rng(0)
    shapes = {"a": (3, 4), "bias": (4,)}
    tree = {
        f"block_{i}": {k: rng.standard_normal(v) for k, v in shapes.items()}
        for i in range(11)
    } | {"out": np.ones((4, 2)), "last_block": np.ones((4, 2))}
    tree = jax.tree.map(jnp.asarray, tree)
    optimizer = training.make_optimizer(RULES[name], 6)

    @jax.jit
    def stepped(params, state):
        updates, state = optimizer.update(params, state, params)
        return jax.tree.map(jnp.add, params, updates), state

    plain, state = tree, jax.jit(optimizer.init)(tree)
    packed, packed_state = jax.jit(pack)((tree, state))
    for _ in range(2):
        plain, state = stepped(plain, state)
        packed, packed_state = stepped(packed, packed_state)
    close(*jax.device_get((jax.jit(unpack)((packed, packed_state)), (plain, state))))


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("seeds", [0, (0, 1)])
def test_unpacking_undoes_packing_to_the_bit(name, seeds):
    _, state = started(OPTIMIZERS[name], seeds)
    axis = jnp.ndim(state.step)
    packed = jax.jit(pack, static_argnums=1)(state, axis)
    assert isinstance(packed.params, Packed)
    kernel = packed.params.arrays["block_*.attn_qkv.kernel"]
    assert kernel.shape == (*state.step.shape, 2, 4, 12)
    back = jax.jit(unpack)(packed)
    assert jax.tree.structure(back) == jax.tree.structure(state)
    jax.tree.map(np.testing.assert_array_equal, back, state)
    leaves = [len(jax.tree.leaves(tree)) for tree in (state.params, packed.params)]
    assert leaves == [2 * 12 + 7, 4 + 1]
    assert "buffer.float64" in packed.params.arrays


@pytest.mark.slow
def test_the_gradient_of_a_packed_tree_is_the_packed_gradient():
    ramp = jnp.arange(6.0)
    blocks = {
        f"b_{i}": {"w": ramp[:3] + i, "m": ramp.reshape(2, 3) - i} for i in range(4)
    }
    tree = {**blocks, "out": jnp.ones(2)}

    def loss(tree):
        parts = [
            (i + 1) * jnp.sum(tree[f"b_{i}"]["m"] @ tree[f"b_{i}"]["w"] ** 2)
            for i in range(4)
        ]
        return sum(parts) + jnp.sum(tree["out"] ** 3)

    got = jax.grad(lambda packed: loss(unpack(packed, 0)))(pack(tree))
    want = pack(jax.grad(loss)(tree))
    assert jax.tree.structure(got) == jax.tree.structure(want)
    jax.tree.map(np.testing.assert_array_equal, got, want)


def test_entries_of_different_shapes_stay_apart():
    tree = {"block_0": jnp.ones(2), "block_1": jnp.ones(3), "inner": {"a": 1}}
    assert not isinstance(pack(tree), Packed)
    assert pack(tree)["inner"] == {"a": 1}
    nested = pack({"outer": {"l_0": jnp.ones(2), "l_1": jnp.ones(2)}})
    assert isinstance(nested["outer"], Packed)
    assert set(unpack(nested)["outer"]) == {"l_0", "l_1"}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_number_comes_back_bit_for_bit(dtype):
    dtype = jnp.dtype(dtype)
    bits = jnp.dtype(f"uint{8 * dtype.itemsize}")
    odd = jnp.asarray([0.0, -0.0, jnp.inf, -jnp.inf, jnp.nan, 1.0], dtype)
    drawn = jax.random.bits(jax.random.key(0), (506,), bits)  # subnormals, NaNs, all
    numbers = jnp.concatenate([odd, jax.lax.bitcast_convert_type(drawn, dtype)])
    block = {"v": numbers, "m": numbers.reshape(16, 32)}
    tree = {"b_0": block, "b_1": block, "out": numbers}
    back = jax.jit(lambda tree: unpack(pack(tree)))(tree)
    for got, want in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
        got, want = (jax.lax.bitcast_convert_type(x, bits) for x in (got, want))
        np.testing.assert_array_equal(got, want)


def test_what_is_told_apart_keeps_an_array_of_its_own():
    block = {"w": jnp.ones((2, 3)), "b": jnp.ones(3), "half": jnp.ones(3, jnp.float16)}
    last = {"w": jnp.ones((2, 5)), "b": jnp.ones(5), "steps": jnp.arange(3)}
    tree = {"block_0": block, "block_1": block, "block_end": last, "out": last}
    packed = pack(tree)
    assert {kind: x.shape for kind, x in packed.arrays.items()} == {
        "buffer.float16": (2 * 3,),
        "buffer.float64": (2 * 3 + 5 + 2 * 5 + 5,),
        "block_*.w": (2, 2, 3),
        "block_end.w": (2, 5),  # the matrix of a block; the others are no real numbers
        "block_end.steps": (3,),
        "out.steps": (3,),
    }
    jax.tree.map(np.testing.assert_array_equal, unpack(packed), tree)
