"""Errors against the number of contexts, with the chance of a miss."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from experiments._patterns import TrainedEnsemble, over_seeds
from experiments.pattern_icl.config import Config
from icltheory.patterns import PatternPrompt, scores

_KEYS = 11


class Shares(NamedTuple):
    """Shares of wrong and of missed prompts, (seeds, fractions, lengths).

    Attributes:
        error: Answered wrongly.
        missed: Without a context of the query's pattern.
        wrong_hits: Answered wrongly although there was one.
    """

    error: Float[Array, "*S"]
    missed: Float[Array, "*S"]
    wrong_hits: Float[Array, "*S"]


def prefix(prompt: PatternPrompt, length: int) -> PatternPrompt:
    """Returns the prompts with only their first ``length`` contexts."""
    return PatternPrompt(
        prompt.P[:, :length],
        prompt.P_query,
        prompt.y[:, :length],
        prompt.z,
        prompt.pattern[:, :length],
        prompt.query_pattern,
        prompt.pair,
        prompt.feasible,
        prompt.dim,
    )


def error_by_length(config: Config, trained: TrainedEnsemble) -> tuple[Shares, Shares]:
    """Shares of wrong prompts on unseen tasks and on shifted patterns, by length."""

    def shares(params, prompt):
        each = []
        for length in config.lengths:
            found = scores(trained.model, params, prefix(prompt, length))
            wrong = ~(found.margins > 0)
            rates = (wrong, found.missed, wrong & ~found.missed)
            each.append(Shares(*(jnp.mean(r.astype(jnp.float32)) for r in rates)))
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)

    def one(task, params, key):
        keys = jax.random.split(key, 3)
        away = task.out_of_domain(config.reference_sum, key=keys[0])

        def at(alpha):
            size = config.lengths[-1], config.prompts
            inside, outside = (
                asked.with_(relevant_fraction=alpha).sample(key, *size)
                for asked, key in zip((task.held_out(), away), keys[1:], strict=True)
            )
            return shares(params, inside), shares(params, outside)

        return jax.lax.map(at, jnp.asarray(config.fractions, jnp.float32))

    return over_seeds(one, trained, trained.ensemble.keys(_KEYS))
