"""The loop: data as a function of (seed, step), chunks, ensembles, accumulation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import training
from icltheory.models import GPT2
from icltheory.regression.tasks import LinearRegression
from icltheory.training import Curriculum, OptimizerConfig, Ramp
from icltheory.training.steps import stream_key

D, P, B, STEPS = 3, 7, 8, 12
MODEL = GPT2(dim=D, num_positions=2 * P, width=8, num_layers=1, num_heads=2)
TASK = LinearRegression.isotropic(D, dtype=jnp.float32)
CURRICULUM = Curriculum(Ramp(1, D, 1, 4), Ramp(3, P, 2, 3))
OPTIMIZER = training.make_optimizer(
    OptimizerConfig("adam", 1e-2, schedule="cosine", clip_norm=1.0), STEPS
)


def start(seed=0):
    return training.init_state(MODEL, TASK, OPTIMIZER, seed, num_points=P)


def build(**kwargs):
    options = {"batch_size": B, "num_points": P} | kwargs
    return training.make_step(MODEL, TASK, OPTIMIZER, CURRICULUM, **options)


def train(step=None, state=None, chunk_steps=4, steps=STEPS):
    chunks = training.run(
        build() if step is None else step,
        start() if state is None else state,
        steps,
        chunk_steps=chunk_steps,
    )
    losses = []
    for chunk in chunks:
        losses.append(np.asarray(chunk.metrics["loss"]))
    return jax.device_get(chunk.state), np.concatenate(losses)


def assert_same(one, two):
    jax.tree.map(np.testing.assert_array_equal, one, two)


def assert_close(one, two, rtol, atol=0.0):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), one, two
    )


@pytest.mark.parametrize(
    ("batch", "halves"), [(B, True), (B, False), (B, None), (B - 1, None)]
)
def test_a_step_is_data_gradient_and_update(batch, halves):
    """One step by hand: the batch of (seed, 0), autodiff of the loss, the optimiser."""
    state = start(5)
    key = jax.random.fold_in(stream_key(5, "data"), 0)
    X, y = TASK.sample(key, P - 1, batch, active_dims=1).points()
    assert not np.any(X[:, :, 1:])
    assert np.all(X[:, :, 0] != 0)

    def loss(params):
        predictions = MODEL.apply({"params": params}, X, y)
        return jnp.mean((predictions[:, :3] - y[:, :3]) ** 2)

    value, grads = jax.jit(jax.value_and_grad(loss))(state.params)
    updates, _ = OPTIMIZER.update(grads, state.opt_state, state.params)
    expected = jax.tree.map(jnp.add, state.params, updates)
    new, metrics = jax.jit(build(batch_size=batch, halves=halves))(state)
    np.testing.assert_allclose(metrics["loss"], value, rtol=1e-5)
    assert_close(new.params, expected, rtol=1e-4, atol=1e-6)
    assert (int(new.step), int(new.seed)) == (1, 5)


def test_chunks_do_not_change_the_run():
    whole, losses = train(chunk_steps=STEPS)
    parts, other = train(chunk_steps=5)
    assert_same(whole, parts)
    np.testing.assert_array_equal(losses, other)


def test_a_run_continues_exactly_from_a_state_in_the_middle():
    whole, losses = train()
    middle, first = train(steps=6)
    end, second = train(state=middle)
    assert_same(whole, end)
    np.testing.assert_array_equal(losses, np.concatenate([first, second]))


def test_one_compilation_serves_all_whole_chunks():
    chunks = list(training.run(build(), start(), STEPS, chunk_steps=4))
    assert [chunk.compile_seconds > 0.05 for chunk in chunks] == [True, False, False]
    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(chunks[-1].state))
    assert all(chunk.memory_bytes >= weights for chunk in chunks)


def test_phases_take_over_where_the_last_one_ended():
    small, large = build(batch_size=2), build()
    phases = [training.Phase(small, 6), training.Phase(large, STEPS)]
    state, losses = train(phases)
    middle, first = train(small, steps=6)
    end, second = train(large, jax.tree.map(jnp.asarray, middle))
    assert_same(state, end)
    np.testing.assert_array_equal(losses, np.concatenate([first, second]))
    # Resumed within the second phase.
    state, _ = train(phases, jax.tree.map(jnp.asarray, middle))
    assert_same(state, end)


@pytest.mark.parametrize("ends", [(), (4, 4, STEPS), (8, 4), (4, STEPS - 1)])
def test_phases_must_ascend_to_the_end(ends):
    phases = [training.Phase(build(), end) for end in ends]
    with pytest.raises(ValueError, match="expected phases that ascend to 12 steps"):
        train(phases)


def test_an_ensemble_is_its_members():
    together, losses = train(jax.vmap(build()), start((3, 4)))
    assert losses.shape == (STEPS, 2)
    for row, seed in enumerate((3, 4)):
        alone, alone_losses = train(state=start(seed))
        member = jax.tree.map(lambda leaf, r=row: leaf[r], together.params)
        # float32 sums in another order; Adam amplifies it where gradients are tiny.
        np.testing.assert_allclose(losses[:, row], alone_losses, rtol=1e-4)
        assert_close(member, alone.params, rtol=1e-2, atol=1e-3)


def test_accumulation_gives_the_gradient_of_the_whole_batch():
    state = start()
    whole, metrics = jax.jit(build())(state)
    parts, other = jax.jit(build(accumulation=4))(state)
    np.testing.assert_allclose(metrics["loss"], other["loss"], rtol=1e-5)
    np.testing.assert_allclose(metrics["grad_norm"], other["grad_norm"], rtol=1e-5)
    assert_close(whole.params, parts.params, rtol=1e-3, atol=1e-5)


def test_the_last_point_alone_can_be_trained_on():
    _, metrics = jax.jit(build(loss_points="last"))(start())
    key = jax.random.fold_in(stream_key(0, "data"), 0)
    X, y = TASK.sample(key, P - 1, B, active_dims=1).points()
    last = MODEL.apply({"params": start().params}, X, y)[:, -1]
    np.testing.assert_allclose(
        metrics["loss"], np.mean((last - y[:, -1]) ** 2), rtol=1e-5
    )


@pytest.mark.parametrize("points", ["all", "last"])
def test_answers_are_compared_with_targets_where_they_are_given(points):
    def targets(task, X, y):
        assert task is TASK
        return 2 * y + X[:, :, 0]

    step = build(targets=targets, loss_points=points)
    state = start()
    key = jax.random.fold_in(stream_key(state.seed, "data"), 0)
    X, y = TASK.sample(key, P - 1, B, active_dims=CURRICULUM.dims(0)).points()
    answers = MODEL.apply({"params": state.params}, X, y)
    off = np.square(np.asarray(answers - targets(TASK, X, y)))
    active = int(CURRICULUM.points(0))
    expected = off[:, :active].mean() if points == "all" else off[:, -1].mean()
    _, metrics = jax.jit(step)(state)
    np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-5)


def test_seeds_and_steps_have_streams_of_their_own():
    keys = [
        jax.random.key_data(jax.random.fold_in(stream_key(seed, stream), step))
        for seed in (0, 1)
        for stream in ("init", "data", "evaluation")
        for step in (0, 1)
    ]
    assert len({tuple(np.asarray(key).tolist()) for key in keys}) == 12


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_step():
    def step(state):
        loss = jnp.where(state.step == 3, jnp.nan, 1.0)
        new = training.TrainState(state.step + 1, state.seed, state.params, ())
        return new, {"loss": loss}

    state = training.TrainState(jnp.int32(0), jnp.int32(0), {}, ())
    with pytest.raises(FloatingPointError, match="at step 3"):
        list(training.run(step, state, 8, chunk_steps=2))


def test_training_lowers_the_loss():
    """Real training: d = 1 falls below the best one-layer linear attention."""
    task = LinearRegression.isotropic(1, dtype=jnp.float32)
    model = GPT2(1, 12, width=16, num_layers=2, num_heads=2, init_std=0.1)
    tx = training.make_optimizer(OptimizerConfig("adam", 5e-3), 800)
    step = training.make_step(
        model, task, tx, Curriculum.none(1, 6), batch_size=32, num_points=6
    )
    state = training.init_state(model, task, tx, 0, num_points=6)
    *_, chunk = training.run(step, state, 800, chunk_steps=200)
    prompt = task.sample(jax.random.key(9), 5, 256).prefixes()
    errors = training.prefix_errors(model, chunk.state.params, prompt).mean(axis=0)
    assert errors[0] > 0.7
    # (d + 1) / (k + d + 1) at k = 5; its Monte Carlo error is about 0.02.
    assert errors[5] < 2 / 7


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"batch_size": 0}, "batch_size: expected a positive integer, got 0"),
        (
            {"accumulation": 3},
            "accumulation: expected a divisor of batch_size 8, got 3",
        ),
        ({"loss_points": "first"}, "loss_points: expected one of"),
        (
            {"batch_size": 6, "accumulation": 2, "halves": True},
            "halves: expected an even part of the batch, got 3",
        ),
    ],
)
def test_bad_settings_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        build(**kwargs)


def test_a_state_beyond_the_end_is_refused():
    state = training.TrainState(jnp.int32(9), jnp.int32(0), {}, ())
    with pytest.raises(ValueError, match="num_steps: expected at least 9 steps, got 5"):
        next(training.run(build(), state, 5))
