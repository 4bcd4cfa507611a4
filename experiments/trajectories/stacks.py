"""The stacks that are compared, and their prompts."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments._trained import TrainedModels
from experiments.trajectories.config import Config
from icltheory import constructions, training
from icltheory.attention import LinearAttentionStack


def stacks(config: Config, trained: TrainedModels) -> dict[str, LinearAttentionStack]:
    """Returns random, gradient-descent and trained stacks in the current precision."""
    L, d = config.linear.num_layers, config.linear.dim
    key = training.stream_key(config.linear.seeds[0], "init")
    scale = config.random_scale / math.sqrt(d + 1)
    random = (
        scale * jax.random.normal(k, (L, d + 1, d + 1))
        for k in jax.random.split(key, 3)
    )
    found = {
        "random": LinearAttentionStack(*random),
        "gradient descent": constructions.gradient_descent(jnp.full(L, 0.5), d),
        "trained": trained.stack(),
    }
    dtype = jnp.result_type(float)
    return {
        name: jax.tree.map(lambda W: jnp.asarray(np.asarray(W), dtype), stack)
        for name, stack in found.items()
    }


class TrajectoryPrompts(NamedTuple):
    """Prompts as tokens, with the labels of the queries.

    Attributes:
        H: Demonstrations, (B, N, n).
        h_query: Query tokens, (B, n).
        answers: Labels of the queries without noise, (B,).
    """

    H: Array
    h_query: Array
    answers: Array


def prompts(config: Config) -> TrajectoryPrompts:
    """Draws prompts with noisy labels in the current precision."""
    key = training.stream_key(config.linear.seeds[0], "evaluation")
    task = config.linear.task(config.label_noise)
    drawn = task.sample(key, config.linear.num_points - 1, config.prompts)
    dtype = jnp.result_type(float)
    drawn = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), dtype), drawn)
    H, h_query = drawn.tokens()
    return TrajectoryPrompts(H, h_query, jnp.sum(drawn.x_query * drawn.w, axis=1))
