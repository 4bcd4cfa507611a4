"""Measures training, its prediction, and the reduced dynamics at small alpha."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.pattern_dynamics.config import Config
from icltheory.patterns import (
    PatternTask,
    PatternTransformer,
    ReducedTraining,
    reduced_training,
    scores,
    train,
)


class Trained(NamedTuple):
    """Training and its prediction for one setting, with a leading axis of seeds.

    Attributes:
        losses: Hinge loss of each batch, averaged over a window, ``(S, steps)``.
        masses: Attention on the query's pattern, every few steps, ``(S, T)``.
        predicted: The same before each step by the reduced dynamics.
    """

    losses: np.ndarray
    masses: np.ndarray
    predicted: ReducedTraining

    def steps(self, goal: float) -> np.ndarray:
        """First steps with a loss below the goal, NaN if there is none, ``(S,)``."""
        return first_below(self.losses, goal)

    def predicted_steps(self, goal: float) -> np.ndarray:
        """First steps with a predicted loss below the goal, ``(S,)``."""
        return first_below(self.predicted.losses, goal)


def first_below(losses: Any, goal: float) -> np.ndarray:
    """Number of the first loss below the goal along the last axis, or NaN."""
    below = np.asarray(losses) < goal
    return np.where(below.any(axis=-1), below.argmax(axis=-1), np.nan)


def measure(config: Config, scale: float, step_size: float, share: float) -> Trained:
    """Trains one model per seed and predicts its training from the initial weights."""
    seeds = jnp.asarray(config.seeds, jnp.uint32)
    numbers = (jnp.float32(x) for x in (scale, step_size, share))
    losses, masses, predicted = _measure(config, seeds, *numbers)
    window = np.ones(config.window) / config.window
    aside = [(0, 0), (config.window // 2,) * 2]
    padded = np.pad(np.asarray(losses, float), aside, mode="edge")
    smooth = np.stack([np.convolve(row, window, "valid") for row in padded])
    return Trained(smooth, np.asarray(masses), jax.tree.map(np.asarray, predicted))


@functools.partial(jax.jit, static_argnums=0)
def _measure(config: Config, seeds, scale, step_size, share):
    return jax.lax.map(
        lambda seed: _one(config, jax.random.key(seed), scale, step_size, share), seeds
    )


def _one(config: Config, key, scale, step_size, share):
    keys = jax.random.split(key, 4)
    task, model = (
        task_of(config, keys[0], scale, share),
        PatternTransformer(config.num_neurons),
    )
    start = model.init(task, key=keys[1])
    setting: dict[str, Any] = {
        "step_size": step_size,
        "num_examples": config.num_examples,
    }
    path = train(
        model,
        task,
        start,
        config.steps,
        key=keys[2],
        batch_size=config.batch_size,
        record_every=config.every,
        **setting,
    )
    prompt = task.sample(keys[3], config.num_examples, config.prompts)

    def mass(params):
        return jnp.mean(scores(model, params, prompt).masses)

    predicted = reduced_training(start, task, config.steps, **setting)
    return path.losses, jax.lax.map(mass, path.params), predicted


def task_of(config: Config, key: Any, scale: Any, share: Any = None) -> PatternTask:
    """Returns the task with all pairs of patterns drawn from a key."""
    return PatternTask(
        config.num_relevant,
        config.num_irrelevant,
        scale,
        relevant_fraction=share,
        key=key,
        dtype=jnp.float32,
    )


def jump_times(config: Config) -> np.ndarray:
    """Steps until one context of the query's pattern outweighs all others.

    By the reduced dynamics of the first seed at the first beta, for each small share.
    """
    scale, step_size = config.scales[0]
    keys = jax.random.split(jax.random.key(config.seeds[0]), 4)
    task = task_of(config, keys[0], scale)
    start = PatternTransformer(config.num_neurons).init(task, key=keys[1])
    times = []
    for share in config.small_shares:
        path = reduced_training(
            start,
            task.with_(relevant_fraction=share),
            # This is more than twice the number of steps expected until the jump.
            round(config.steps * (0.1 + 0.4 / share)),
            step_size=step_size,
            num_examples=config.num_examples,
        )
        reached = np.asarray(path.logits) > np.log(config.num_examples)
        times.append(reached.argmax() if reached.any() else np.nan)
    return np.array(times, float)
