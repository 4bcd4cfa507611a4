"""The prompts for testing pruned models, and errors on them."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from experiments._patterns import shifted_prompts
from experiments.pattern_pruning.config import Config
from icltheory.patterns import PatternPrompt, PatternTask, hinge

# Purpose of the keys of the prompts (see ``PatternEnsemble.keys``).
PROMPTS = 6
# Indices of the tests: unseen tasks, and shifted patterns at the first alpha'.
INSIDE, OUTSIDE = 0, 1


def prompts_of(
    config: Config,
    task: PatternTask,
    key: Any,
    alphas: int,
    num_prompts: int,
    num_draws: int | None = None,
) -> PatternPrompt:
    """Draws prompts (tests, draws, prompts): unseen tasks and shifted patterns.

    The tests out of domain share the draws of the patterns.

    Args:
        config: The sizes.
        task: Task of one seed.
        key: Key of that seed.
        alphas: How many of the alpha' out of domain.
        num_prompts: Prompts of a draw.
        num_draws: Draws; those of the config if ``None``.

    Returns:
        The prompts.
    """
    l = config.num_examples
    values = jnp.asarray(config.alphas, task.dtype)

    def known(draw):
        own = jax.random.fold_in(jax.random.fold_in(key, 0), draw)
        unseen = task.held_out().with_(relevant_fraction=values[0])
        return unseen.sample(own, l, num_prompts)

    def shifted(alpha, draw):
        own = jax.random.fold_in(jax.random.fold_in(key, 1), draw)
        S = jnp.asarray(config.coefficient_sum, task.dtype)
        return shifted_prompts(task, own, S, num_prompts, l, alpha)

    draws = jnp.arange(config.draws if num_draws is None else num_draws)
    inside = jax.vmap(known)(draws)
    outside = jax.vmap(
        lambda alpha: jax.vmap(lambda draw: shifted(alpha, draw))(draws)
    )(values[:alphas])
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), inside, outside)


def errors(outputs: Float[Array, "... draws B"], z: Float[Array, "... draws B"]):
    """Mean hinge and 0-1 error of outputs F over draws and prompts; NaN is an error."""
    margins = z.reshape((1,) * (outputs.ndim - z.ndim) + z.shape) * outputs
    wrong = (~(margins > 0)).astype(margins.dtype)
    return jnp.mean(hinge(margins), (-2, -1)), jnp.mean(wrong, (-2, -1))
