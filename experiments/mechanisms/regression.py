"""Attention heads of a GPT-2 on regression: attention to repeated inputs."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments._trained import Recipe, TrainedModels
from icltheory import induction
from icltheory.models import LayeredGPT2
from icltheory.training import stream_key


class Lookup(NamedTuple):
    """Head scores and errors at inputs that occurred before with their label.

    Attributes:
        trained: Scores of the heads, at the second occurrence of every input: prefix
            matching is attention on the label of the same input.
        untrained: The same at the start of the training.
        again: Mean squared error / d at an input that comes again.
        fresh: At a fresh input behind as many distinct pairs.
    """

    trained: induction.HeadScores
    untrained: induction.HeadScores
    again: float
    fresh: float


def measure(
    recipe: Recipe, trained: TrainedModels, sequences: int, seed: int
) -> Lookup:
    """Measures scores on prompts that repeat their distinct pairs in the same order."""
    n = recipe.num_points // 2
    model = LayeredGPT2(trained.module)
    drawn = recipe.task(0.0).sample(stream_key(seed, "evaluation"), n + 1, sequences)
    X = jnp.concatenate([drawn.X[:, :n], drawn.X[:, :n]], axis=1)
    y = jnp.concatenate([drawn.y[:, :n], drawn.y[:, :n]], axis=1)
    asked = jnp.concatenate([drawn.X[:, :n], drawn.X[:, n:]], axis=1)
    label = drawn.y[:, n]
    # Inputs and labels have distinct numbers, so the first block contains no match.
    names = jnp.arange(2 * n)
    tokens = jnp.broadcast_to(jnp.tile(names, 2), (sequences, 4 * n))
    rows = tokens % 2 == 0

    @jax.jit
    def read(params):
        found = induction.head_scores(model, params, (X, y), tokens, rows)
        again = trained.module.apply({"params": params}, X, y)[:, n:]
        fresh = trained.module.apply({"params": params}, asked, y[:, : n + 1])[:, n]
        errors = jnp.mean((again - y[:, n:]) ** 2), jnp.mean((fresh - label) ** 2)
        return found, errors

    first = recipe.start().params
    several = len(recipe.seeds) > 1
    start, _ = read(jax.tree.map(lambda a: a[0], first) if several else first)
    end, errors = read(trained.of_seed(0))
    again, fresh = (float(error) / recipe.dim for error in errors)
    end, start = jax.tree.map(np.asarray, (end, start))
    return Lookup(end, start, again, fresh)
