"""Optimisers: schedules in closed form, Muon against a NumPy loop, clipping."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from icltheory.training import OptimizerConfig, learning_rate, make_optimizer


@pytest.mark.parametrize(
    "schedule", ["constant", "cosine", "linear", "trapezoid", "triangle"]
)
def test_schedules_are_their_formulas(schedule):
    steps, warmup, peak = 100, 10, 0.5
    record = OptimizerConfig("adam", peak, None, schedule, warmup, decay_part=0.4)
    rate = learning_rate(record, steps)
    warmup = 50 if schedule == "triangle" else warmup
    for t in range(steps + 1):
        u = (t - warmup) / (steps - warmup)
        shape = {
            "constant": 1.0,
            "cosine": (1 + math.cos(math.pi * u)) / 2,
            "linear": 1 - u,
            "trapezoid": min(1, (steps - t) / 40),
            "triangle": 1 - u,
        }[schedule]
        expected = peak * (t / warmup if t < warmup else shape)
        # optax computes schedules in float32.
        np.testing.assert_allclose(rate(t), expected, rtol=1e-5, atol=1e-7)


def numpy_muon(gradients, rate, beta=0.95):
    """Nesterov momentum, five quintic Newton-Schulz steps, the width factor."""
    a, b, c = 3.4445, -4.775, 2.0315
    momentum, total = np.zeros_like(gradients[0]), np.zeros_like(gradients[0])
    for t, g in enumerate(gradients, start=1):
        momentum = beta * momentum + (1 - beta) * g
        corrected = beta * momentum / (1 - beta ** (t + 1))
        x = corrected + (1 - beta) * g / (1 - beta**t)
        x = x / np.linalg.norm(x)
        tall = x.shape[0] > x.shape[1]
        x = x.T if tall else x
        for _ in range(5):
            A = x @ x.T
            x = a * x + (b * A + c * A @ A) @ x
        x = x.T if tall else x
        total -= rate * math.sqrt(max(1, x.shape[1] / x.shape[0])) * x
    return total


@pytest.mark.slow
def test_muon_moves_hidden_matrices_as_published_and_the_rest_by_adam():
    rng = np.random.default_rng(0)
    shapes = {
        "block_0": {"a": (4, 12), "b": (12, 4), "bias": (4,)},
        "block_1": {"a": (4, 12), "b": (12, 4), "bias": (4,)},
        "read_in": {"kernel": (3, 4)},
    }
    draw = lambda: jax.tree.map(  # noqa: E731
        lambda s: rng.normal(size=s), shapes, is_leaf=lambda s: isinstance(s, tuple)
    )
    params = jax.tree.map(jnp.zeros_like, draw())
    gradients = [draw() for _ in range(3)]
    tx = make_optimizer(OptimizerConfig("muon", 0.1, adam_learning_rate=0.01), 10)
    adam = optax.adam(0.01)
    state, adam_state, adam_params = tx.init(params), adam.init(params), params

    @jax.jit
    def both(g, params, state, adam_params, adam_state):
        updates, state = tx.update(g, state, params)
        params = optax.apply_updates(params, updates)
        updates, adam_state = adam.update(g, adam_state, adam_params)
        return params, state, optax.apply_updates(adam_params, updates), adam_state

    for g in gradients:
        params, state, adam_params, adam_state = both(
            g, params, state, adam_params, adam_state
        )
    for block in ("block_0", "block_1"):
        for name in ("a", "b"):
            expected = numpy_muon([g[block][name] for g in gradients], 0.1)
            np.testing.assert_allclose(params[block][name], expected, rtol=1e-5)
        np.testing.assert_allclose(
            params[block]["bias"], adam_params[block]["bias"], rtol=1e-9
        )
    np.testing.assert_allclose(
        params["read_in"]["kernel"], adam_params["read_in"]["kernel"], rtol=1e-9
    )


@pytest.mark.slow
def test_gradients_are_clipped_by_their_global_norm():
    tx = make_optimizer(OptimizerConfig("sgd", 1.0, clip_norm=2.0, b1=0.0), 5)
    params = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
    updates, _ = tx.update(params, tx.init(params), params)
    np.testing.assert_allclose(updates["a"], [-3.0 * 2 / 5])
    np.testing.assert_allclose(updates["b"], [-4.0 * 2 / 5])


def test_adam_with_gargs_settings_equals_its_formula():
    tx = make_optimizer(OptimizerConfig(), 5)
    g = {"w": jnp.array([0.3, -7.0])}
    state = tx.init(g)
    m = v = np.zeros(2)
    for t in range(1, 4):
        updates, state = tx.update(g, state, g)
        m, v = (
            0.9 * m + 0.1 * np.asarray(g["w"]),
            0.999 * v + 0.001 * np.asarray(g["w"]) ** 2,
        )
        step = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(updates["w"], -1e-4 * step, rtol=1e-6)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"name": "lion"}, "optimizer: expected one of"),
        ({"schedule": "step"}, "schedule: expected one of"),
        ({"learning_rate": 0.0}, "learning_rate: expected a value > 0"),
        ({"learning_rate": float("inf")}, "learning_rate: expected a value > 0"),
        ({"adam_learning_rate": -1.0}, "adam_learning_rate: expected a value > 0"),
        ({"eps": -1.0}, "eps: expected a value >= 0"),
        ({"decay_part": 0.0}, "decay_part: expected a share"),
        ({"weight_decay": 0.1}, "weight_decay: expected 0 with adam"),
        ({"clip_norm": -1.0}, "clip_norm: expected a value >= 0"),
        ({"clip_norm": float("nan")}, "clip_norm: expected a value >= 0, got nan"),
        ({"b1": 2.0}, r"b1: expected a decay in \[0, 1\), got 2.0"),
        ({"average": -0.1}, "average: expected a decay"),
        ({"average": 1.0}, "average: expected a decay"),
    ],
)
def test_bad_settings_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        OptimizerConfig(**kwargs)


def test_a_fall_longer_than_what_the_warmup_leaves_is_refused():
    config = OptimizerConfig(schedule="trapezoid", warmup_steps=3, decay_part=0.8)
    with pytest.raises(ValueError, match="decay_part: expected a decay within the"):
        learning_rate(config, 10)


def test_a_warmup_longer_than_the_run_is_refused():
    with pytest.raises(ValueError, match="warmup_steps: expected at most 5, got 6"):
        make_optimizer(OptimizerConfig(warmup_steps=6), 5)
