"""Tuned gradient descent, the reference for a trained model."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.shared.training import Recipe
from icltheory import training
from icltheory.regression import predictors
from icltheory.regression.sources import Prompt


def gradient_descent_errors(
    recipe: Recipe, prompt: Prompt, steps: int
) -> tuple[np.ndarray, float]:
    """Squared errors / d, by prompt, of descent with its best constant step size.

    The step size, returned too, is the best of 60 on 2,048 fresh prompts.
    """
    key = jax.random.fold_in(training.stream_key(recipe.seeds[0], "evaluation"), 1)
    tuning = recipe.task().sample(key, recipe.num_points - 1, 2048)
    sizes = jnp.linspace(0.02, 1.2, 60, dtype=jnp.float32)

    def errors(prompt: Prompt, size: Any):
        rule = predictors.Steps(jnp.full(steps, size))
        answers = jax.vmap(rule.predict)(prompt.X, prompt.y, prompt.x_query)
        return jnp.square(answers - prompt.y_query) / recipe.dim

    mean = jax.jit(lambda s: jax.lax.map(lambda e: errors(tuning, e).mean(), s))(sizes)
    best = sizes[jnp.argmin(mean)]
    return np.asarray(jax.jit(errors)(prompt, best)), float(best)
