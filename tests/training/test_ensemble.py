"""Ensembles: every member is the model trained alone; one that diverges is frozen."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import training
from icltheory.models import GPT2
from icltheory.regression import LinearPopulation
from icltheory.training import Curriculum, Member, OptimizerConfig, Ramp

D, P, B, STEPS = 3, 7, 8, 8
MODEL = GPT2(dim=D, num_positions=2 * P, width=8, num_layers=1, num_heads=2, mlp=False)
TASK = LinearPopulation.isotropic(D, 0.5, dtype=jnp.float32)
CURRICULUM = Curriculum(Ramp(1, D, 1, 4), Ramp(3, P, 2, 3))
SIZES = {"batch_size": B, "num_points": P}


@functools.cache
def start(optimizer, ensemble, model=MODEL):
    sizes = {"num_steps": STEPS, "num_points": P}
    state = training.init_ensemble(model, TASK, optimizer, ensemble, **sizes)
    return jax.device_get(state)  # a run takes the memory of arrays on the device


def build(optimizer, ensemble, model=MODEL, **options):
    args = model, TASK, optimizer, ensemble, CURRICULUM
    options = {"num_steps": STEPS, "at_once": 8} | SIZES | options
    return training.make_ensemble_step(*args, **options)


def train(step, state, **options):
    """Last state and losses; the state after each chunk."""
    chunks = training.run(step, state, STEPS, chunk_steps=4, **options)
    losses, states = [], []
    for chunk in chunks:
        losses.append(np.asarray(chunk.metrics["loss"]))
        states.append(jax.device_get(chunk.state))
    return states[-1], np.concatenate(losses), states


def alone(optimizer, member, model=MODEL):
    """The member through ``make_step`` with Python numbers in its optimiser."""
    task, record = member.alone(TASK, optimizer)
    rule = training.make_optimizer(record, STEPS)
    step = training.make_step(model, task, rule, CURRICULUM, **SIZES)
    state = training.init_state(model, task, rule, member.seed, num_points=P)
    end, losses, _ = train(step, state)
    return end.params, losses


def without_key_bias(params):
    """Softmax does not see it: Adam moves it by the signs of rounding."""
    width = np.shape(params["positions"])[-1]

    def clear(path, leaf):
        if "attn_qkv" not in str(path) or "bias" not in str(path):
            return leaf
        part = np.arange(3 * width) // width
        return np.where(part == 1, np.zeros((), leaf.dtype), leaf)

    return jax.tree_util.tree_map_with_path(clear, params)


def assert_member(trained, index, expected):
    params, losses = expected
    state, all_losses = trained[:2]
    np.testing.assert_allclose(all_losses[:, index], losses, rtol=1e-5)
    assert_params(state, index, params)


def assert_params(state, index, params):
    own = jax.tree.map(lambda leaf: np.asarray(leaf)[index], state.params)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=3e-5),
        without_key_bias(own),
        without_key_bias(params),
    )


ADAM = OptimizerConfig("adam", 1e-2, schedule="cosine", warmup_steps=3, clip_norm=1.0)
MUON = OptimizerConfig(
    "muon", 1e-2, adam_learning_rate=3e-3, schedule="linear", warmup_steps=2
)
SGD = OptimizerConfig("sgd", 0.05)
ADAM_GRID = tuple(
    Member(seed, noise, rate)
    for noise, rate, seed in itertools.product((0.0, 1.0), (3e-3, 3e-2), (3, 5))
)


@pytest.fixture(scope="module")
def adam():
    return train(build(ADAM, ADAM_GRID), start(ADAM, ADAM_GRID))


def check_members(trained, optimizer, grid, indices):
    state, losses, _ = trained
    assert losses.shape == (STEPS, len(grid))
    assert (state.diverged_at == -1).all()
    # Members are told apart: no two train alike.
    assert len(np.unique(losses[-1])) == len(grid)
    for index in indices:
        assert_member(trained, index, alone(optimizer, grid[index]))


@pytest.mark.slow
def test_two_steps_of_a_member_are_those_of_the_model_alone():
    """Its seed, noise, rate, decay and norm, by a rule whose rate has a schedule."""
    grid = tuple(Member(3, noise, 1e-2, 0.5, 0.1) for noise in (0.0, 1.0))
    record = dataclasses.replace(ADAM, name="adamw", schedule="linear", warmup_steps=1)
    task, own = grid[1].alone(TASK, record)
    rule = training.make_optimizer(own, STEPS)
    alone = training.make_step(MODEL, task, rule, CURRICULUM, **SIZES)
    state = training.init_state(MODEL, task, rule, 3, num_points=P)
    together = jax.tree.map(jnp.asarray, start(record, grid))
    assert_params(together, 1, state.params)
    one, all_of_them = jax.jit(alone), jax.jit(build(record, grid))
    for _ in range(2):
        state, metrics = one(state)
        together, several = all_of_them(together)
        np.testing.assert_allclose(several["loss"][1], metrics["loss"], rtol=1e-5)
    assert several["loss"][0] != several["loss"][1]
    assert_params(together, 1, state.params)


@pytest.mark.slow
def test_members_of_adam_are_the_models_trained_alone(adam):
    """Both noises, rates and seeds, with clipping, warm-up and schedule."""
    check_members(adam, ADAM, ADAM_GRID, (6,))


@pytest.mark.slow
def test_members_of_muon_are_the_models_trained_alone():
    grid = tuple(
        Member(0, noise, rate) for noise in (0.25, 1.0) for rate in (5e-3, 2e-2)
    )
    check_members(train(build(MUON, grid), start(MUON, grid)), MUON, grid, (2,))


@pytest.mark.slow
def test_one_at_a_time_is_the_same(adam):
    step = build(ADAM, ADAM_GRID, at_once=1)
    state, losses, _ = train(step, start(ADAM, ADAM_GRID))
    for index in range(len(ADAM_GRID)):
        member = jax.tree.map(lambda leaf, i=index: leaf[i], state.params)
        assert_member(adam, index, (member, losses[:, index]))


@pytest.mark.slow
def test_an_ensemble_resumes_exactly_from_a_checkpoint(adam, tmp_path):
    end, losses, (middle, _) = adam
    store = training.Checkpoints(tmp_path)
    store.save(4, jax.tree.map(jnp.asarray, middle))
    like = jax.tree.map(jnp.zeros_like, middle)
    again, second, _ = train(build(ADAM, ADAM_GRID), store.restore(like).state)
    np.testing.assert_array_equal(losses[4:], second)
    jax.tree.map(np.testing.assert_array_equal, end, again)


@pytest.mark.slow
def test_a_member_that_diverges_is_frozen_and_the_others_go_on():
    grid = Member(0, learning_rate=0.05), Member(0, learning_rate=0.06)
    step = jax.jit(build(SGD, grid))

    def states(rates):
        rates = {"optimizer.learning_rate": jnp.asarray(rates, jnp.float32)}
        begin = jax.tree.map(jnp.asarray, start(SGD, grid))
        state = dataclasses.replace(begin, settings=rates)
        found, losses = [state], []
        for _ in range(STEPS):
            state, metrics = step(state)
            found.append(jax.device_get(state))
            losses.append(metrics["loss"])
        return found, np.stack(losses)

    def of(state, index):
        kept = state.params, state.models.opt_state
        return jax.tree.map(lambda leaf: leaf[index], kept)

    def assert_same(one, two):
        jax.tree.map(np.testing.assert_array_equal, one, two)

    calm, calm_losses = states((0.05, 0.06))
    wild, losses = states((0.05, 1e6))
    fell, at = wild[-1].diverged_at.tolist()
    assert fell == -1
    assert 0 < at < STEPS - 1
    np.testing.assert_array_equal(np.isnan(losses[:, 1]), np.arange(STEPS) >= at)
    # The neighbour does not notice, to the last bit.
    np.testing.assert_array_equal(losses[:, 0], calm_losses[:, 0])
    assert_same(of(wild[-1], 0), of(calm[-1], 0))
    # It keeps what it had at that step; its clock goes on, as a resume needs.
    assert_same(of(wild[-1], 1), of(wild[at], 1))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(wild[-1].params))
    assert wild[-1].step.tolist() == [STEPS, STEPS]


@pytest.mark.parametrize(("last", "stops"), [(4, False), (3, True)])
def test_a_run_goes_on_until_its_last_member_diverges(last, stops):
    """Of two members the first ends at step 1, the second at step ``last`` of 4."""

    def step(state):
        alive = state.step < jnp.array([1, last])
        new = training.TrainState(state.step + 1, state.seed, state.params, ())
        return new, {"loss": jnp.where(alive, 1.0, jnp.nan), "alive": alive}

    clock, seeds = jnp.zeros(2, jnp.int32), jnp.arange(2, dtype=jnp.int32)
    state = training.TrainState(clock, seeds, {}, ())
    chunks = training.run(step, state, 4)
    if not stops:
        assert np.isnan(next(chunks).metrics["loss"]).sum() == 3
        return
    with pytest.raises(FloatingPointError, match="at step 3;"):
        next(chunks)


@pytest.mark.slow
def test_what_does_not_differ_stays_a_constant_of_the_program():
    grid = Member(0, 0.0, 1e-3, None, 1.0), Member(1, 0.0, 1e-2, None, 1.0)
    assert set(start(SGD, grid).settings) == {"optimizer.learning_rate"}
    task, record = grid[1].alone(TASK, ADAM)
    assert (float(task.noise_var), record.learning_rate) == (0.0, 1e-2)
    assert record.schedule == ADAM.schedule


@pytest.mark.slow
def test_members_that_leave_a_number_out_have_that_of_all():
    shared = dataclasses.replace(SGD, learning_rate=0.02)
    left_out = Member(0), Member(0, 1.0, 0.1, None, 2.0)
    written = Member(0, 0.5, 0.02, None, np.inf), left_out[1]
    found, wanted = (start(shared, members) for members in (left_out, written))
    assert {n: v.tolist() for n, v in found.settings.items()} == {
        "task.noise_var": [0.5, 1.0],
        "optimizer.learning_rate": pytest.approx([0.02, 0.1]),
        "optimizer.clip_norm": [np.inf, 2.0],
    }
    params = train(build(shared, left_out), found)[0].params
    again = train(build(shared, written), wanted)[0].params
    jax.tree.map(np.testing.assert_array_equal, params, again)


class NoiseFree:
    """A task that has no noise variance."""

    dim = D

    def sample(self, key, num_examples, batch_size, *, active_dims=None):
        """Is not called."""


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ((), "members: expected at least one, got none"),
        ((Member(-1),), "seed: expected an integer >= 0, got -1"),
        ((Member(2**40),), "seed: expected integers of 32 bits, got"),
        ((Member(0, learning_rate=0.0),), "learning_rate: expected a value > 0, got"),
        ((Member(0), Member(0, -1.0)), "noise_var: expected a value >= 0, got -1.0"),
        (
            (Member(0, clip_norm=0.0),),
            "clip_norm: expected a value > 0, inf for none, got 0",
        ),
    ],
)
def test_impossible_members_are_refused(members, message):
    with pytest.raises(ValueError, match=message):
        start(SGD, members)


def test_impossible_steps_are_refused_before_they_are_traced():
    with pytest.raises(ValueError, match="at_once: expected a positive integer, got 0"):
        build(SGD, (Member(0),), at_once=0)
    with pytest.raises(ValueError, match="loss_points: expected one of"):
        build(SGD, (Member(0),), loss_points="first")
    with pytest.raises(ValueError, match="expected a task with a noise_var, got Noise"):
        Member(0, noise_var=1.0).alone(NoiseFree(), SGD)
