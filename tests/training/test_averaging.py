"""The running mean of the weights: its formula, its walk, where it is kept."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from icltheory import training
from icltheory.models import GPT2
from icltheory.regression import LinearPopulation
from icltheory.training import Curriculum, Member, OptimizerConfig
from icltheory.training.optimizers import with_average

STEPS, SIZES = 6, {"num_points": 4}
MODEL = GPT2(dim=2, num_positions=8, width=4, num_layers=2, num_heads=1, mlp=False)
TASK = LinearPopulation.isotropic(2, dtype=jnp.float32)
PLAIN = OptimizerConfig("muon", 1e-2, clip_norm=1.0)
MEAN = dataclasses.replace(PLAIN, average=0.8)


def numpy_mean(weights, decay):
    """The definition, one weight after another; the first entry is the start."""
    mean = weights[0]
    for t, weight in enumerate(weights[1:], start=1):
        kept = min(decay, t / (t + 9))
        mean = kept * mean + (1 - kept) * weight
    return mean


@pytest.mark.parametrize("decay", [0.05, 0.5, 0.99])
def test_the_mean_is_its_formula(decay):
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(20, 3))
    tx = with_average(optax.sgd(0.1), decay)
    weight = jnp.asarray(rng.normal(size=3))
    state, walk = tx.init(weight), [np.asarray(weight)]
    for gradient in gradients:
        updates, state = tx.update(jnp.asarray(gradient), state, weight)
        weight = optax.apply_updates(weight, updates)
        walk.append(np.asarray(weight))
    np.testing.assert_allclose(state.mean, numpy_mean(walk, decay), rtol=1e-6)


def test_the_mean_is_found_wherever_the_rules_keep_it():
    record = dataclasses.replace(PLAIN, name="adamw", average=0.5)
    optimizer = training.make_optimizer(record, STEPS)
    weights = {"w": np.arange(3.0), "b": np.ones(2)}
    weights = jax.tree.map(jnp.asarray, weights)

    @jax.jit
    def update(weights, state):
        updates, state = optimizer.update(weights, state, weights)
        return optax.apply_updates(weights, updates), state

    walk, opt_state = [weights], jax.jit(optimizer.init)(weights)
    for _ in range(3):
        weights, opt_state = update(weights, opt_state)
        walk.append(weights)
    walk = jax.device_get(walk)
    state = training.TrainState(jnp.int32(3), jnp.int32(0), weights, opt_state)
    expected = jax.tree.map(lambda *leaves: numpy_mean(leaves, 0.5), *walk)
    same(training.averaged(state), expected, 1e-6)


def trained(config, packed=False, members=None):
    step, state = started(config) if members is None else several(config, members)
    for chunk in training.run(step, state, STEPS, packed=packed):
        state = chunk.state
    return state


def started(config):
    optimizer = training.make_optimizer(config, STEPS)
    state = training.init_state(MODEL, TASK, optimizer, 0, **SIZES)
    args = MODEL, TASK, optimizer, Curriculum.none(2, 4)
    return training.make_step(*args, batch_size=4, halves=False, **SIZES), state


def several(config, members):
    args = MODEL, TASK, config, members
    sizes = {"num_steps": STEPS} | SIZES
    state = training.init_ensemble(*args, **sizes)
    step = training.make_ensemble_step(
        *args, Curriculum.none(2, 4), batch_size=4, at_once=2, **sizes
    )
    return step, state


def same(one, two, rtol):
    def close(path, a, b):
        a, b = np.asarray(a), np.asarray(b)
        if "'attn_qkv']['bias'" in jax.tree_util.keystr(path):
            # An offset of all keys moves no weight of a softmax: its gradient is
            # rounding, which Adam brings to the size of the others.
            keys = slice(MODEL.width, 2 * MODEL.width)
            a, b = (np.delete(leaf, keys, axis=-1) for leaf in (a, b))
        np.testing.assert_allclose(a, b, rtol, 1e-6)

    jax.tree_util.tree_map_with_path(close, one, two)


@pytest.mark.slow
def test_a_training_walks_as_without_and_keeps_the_mean_of_its_walk():
    step, state = started(PLAIN)
    walk = [jax.device_get(state.params)]
    for chunk in training.run(step, state, STEPS, chunk_steps=1):
        walk.append(jax.device_get(chunk.state.params))
    assert training.averaged(chunk.state) is chunk.state.params
    end = trained(MEAN)
    same(end.params, walk[-1], 1e-6)
    expected = jax.tree.map(lambda *leaves: numpy_mean(leaves, 0.8), *walk)
    same(training.averaged(end), expected, 1e-5)


@pytest.mark.slow
def test_stacked_blocks_and_ensembles_keep_the_same_mean():
    # Adam would move the keys' bias, which softmax does not see, by rounding's signs.
    record = OptimizerConfig("sgd", 0.1, average=0.8)
    alone = training.averaged(trained(record))
    same(training.averaged(trained(record, packed=True)), alone, 1e-3)
    both = trained(record, packed=True, members=[Member(0), Member(1)])
    both = training.averaged(both)
    same(jax.tree.map(lambda leaf: leaf[0], both), alone, 1e-3)


@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_a_decay_without_a_mean_is_refused(decay):
    with pytest.raises(ValueError, match="decay: expected a number between 0 and 1"):
        with_average(optax.sgd(0.1), decay)
