"""Compares gradient noise with labels and with posterior means as targets."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.garg_recipe.config import Config
from icltheory import training

_AT_ONCE = 64
_square = functools.partial(optax.tree.norm, squared=True)


def gradient_noise(config: Config, params: Any) -> dict[str, np.ndarray]:
    """Trace of the covariance of single prompts' gradients, for each seed's weights.

    Args:
        config: Sizes and task.
        params: Weights with an axis of seeds.

    Returns:
        ``labels`` and ``posterior``, (seeds,).
    """
    key = training.stream_key(config.seeds[0], "evaluation")
    count = -(-config.eval_prompts // _AT_ONCE) * _AT_ONCE
    X, y = config.task().sample(key, config.num_points - 1, count).points()
    means = training.bayes_targets(config.task(), X, y)
    model = config.model(config.baseline)

    def traces(goal: jax.Array) -> np.ndarray:
        with jax.default_matmul_precision("highest"):
            found = jax.lax.map(lambda p: _trace(model, p, X, y, goal), params)
        return np.asarray(found)

    return {"labels": traces(y), "posterior": traces(means)}


@functools.partial(jax.jit, static_argnums=0)
def _trace(model: Any, params: Any, X: Any, y: Any, goal: Any) -> jax.Array:
    def loss(params, X, y, goal):
        answers = model.apply({"params": params}, X[None], y[None])
        return jnp.square(answers[0] - goal).mean()

    def add(sums, batch):
        each = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0, 0))(params, *batch)
        total, squares = sums
        total = jax.tree.map(lambda a, g: a + g.sum(axis=0), total, each)
        return (total, squares + _square(each)), None

    start = jax.tree.map(jnp.zeros_like, params), jnp.zeros((), y.dtype)
    batches = jax.tree.map(
        lambda leaf: leaf.reshape(-1, _AT_ONCE, *leaf.shape[1:]), (X, y, goal)
    )
    (total, squares), _ = jax.lax.scan(add, start, batches)
    return (squares - _square(total) / len(y)) / (len(y) - 1)
