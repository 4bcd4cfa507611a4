"""Trains stacks with unconstrained weights on prompts."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.depth.classes import Steps, best_start
from experiments.depth.config import Config
from experiments.depth.descent import descend
from icltheory import constructions
from icltheory.attention import LinearAttentionStack

RANDOM, CONTINUED = "free, random start", "free, from GD++"


class Prompts(NamedTuple):
    """Prompts with the batch as the last axis, which vectorises small products.

    Attributes:
        H: Tokens (x_i, y_i), (d + 1, N, B).
        x: Queries, (d, B).
        y: Their labels, (B,).
    """

    H: jax.Array
    x: jax.Array
    y: jax.Array


def draw(key: jax.Array, dim: int, num_examples: int, count: int) -> Prompts:
    """Draws prompts with isotropic inputs and tasks, without noise."""
    inputs, tasks = jax.random.split(key)
    X = jax.random.normal(inputs, (dim, num_examples + 1, count))
    w = jax.random.normal(tasks, (dim, 1, count))
    y = jnp.sum(w * X, axis=0)
    H = jnp.concatenate([X, y[None]])
    return Prompts(H[:, :-1], X[:, -1], y[-1])


def predict(stack: LinearAttentionStack, prompts: Prompts) -> jax.Array:
    """Predictions: minus the label slot of the query after all layers, (B,).

    It is ``stack.apply`` with ``scale=1 / N`` on every prompt.
    """
    N = prompts.H.shape[1]

    def layer(state, weights):
        H, h = state
        W_V, W_K, W_Q = weights
        values, keys = (jnp.tensordot(W, H, 1) for W in (W_V, W_K))
        A = jnp.sum(values[:, None] * keys[None], axis=2) / N
        queries, query = jnp.tensordot(W_Q, H, 1), jnp.tensordot(W_Q, h, 1)
        moved = jnp.sum(A[:, :, None] * queries[None], axis=1)
        return (H + moved, h + jnp.sum(A * query[None], axis=1)), None

    h = jnp.concatenate([prompts.x, jnp.zeros_like(prompts.y)[None]])
    (_, h), _ = jax.lax.scan(layer, (prompts.H, h), (stack.W_V, stack.W_K, stack.W_Q))
    return -h[-1]


def risk(stack: LinearAttentionStack, prompts: Prompts) -> jax.Array:
    """Squared error divided by the dimension, (B,)."""
    return jnp.square(predict(stack, prompts) - prompts.y) / len(prompts.x)


def train_free(
    config: Config, dim: int, num_examples: int, plus: Steps
) -> dict[tuple[str, int], tuple[np.ndarray, ...]]:
    """Trains unconstrained weights from random starts and from trained GD++ stacks.

    Args:
        config: The config.
        dim: Dimension d.
        num_examples: Examples N.
        plus: Trained GD++ of every depth and start.

    Returns:
        W_V, W_K, W_Q by kind of start and depth, ``(starts, L, d + 1, d + 1)`` each.
    """
    key = jax.random.fold_in(jax.random.key(config.seed + 1), dim * 1000 + num_examples)
    found = {}
    for L in config.free_layers:
        own = jax.random.fold_in(key, L)
        shape = (3, config.free_starts, L, dim + 1, dim + 1)
        noise = jax.random.normal(own, shape)
        every = Steps(*(part[L - 1, :, :L] for part in plus))
        best = stacks_of(best_start(every, own, dim, num_examples), dim)
        near = tuple(W + 0.02 * n for W, n in zip(best, noise, strict=True))
        far = tuple(config.free_scale * noise)
        start = jax.tree.map(lambda *parts: jnp.concatenate(parts), far, near)
        end = _train(config, start, own, dim, num_examples)
        for i, kind in enumerate((RANDOM, CONTINUED)):
            runs = slice(i * config.free_starts, (i + 1) * config.free_starts)
            found[kind, L] = tuple(W[runs] for W in end)
    return found


def stacks_of(steps: Steps, dim: int) -> Sequence[jax.Array | np.ndarray]:
    """Weights W_V, W_K, W_Q of GD++ with these steps, (starts, L, d + 1, d + 1)."""

    def weights(labels, inputs):
        stack = constructions.gd_plus_plus(labels, inputs, dim)
        return stack.W_V, stack.W_K, stack.W_Q

    labels, inputs = (jnp.asarray(part) for part in steps)
    return jax.vmap(weights)(labels, inputs)


def _train(config: Config, start, key, dim: int, num_examples: int):
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, config.free_rate, config.free_steps // 20, config.free_steps
    )
    optimizer = optax.chain(optax.clip(0.5), optax.adam(schedule))

    def loss(weights, prompts):
        risks = jax.vmap(lambda *W: jnp.mean(risk(LinearAttentionStack(*W), prompts)))(
            *weights
        )
        return jnp.sum(jnp.log(risks))

    def drawn(key):
        return draw(key, dim, num_examples, config.free_batch)

    end = descend(loss, drawn, start, optimizer, config.free_steps, key)
    return jax.tree.map(np.asarray, end)
