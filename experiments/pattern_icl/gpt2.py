"""Errors of GPT-2 on the same prompts (Figures 12 and 13)."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from experiments._patterns.gpt2 import TrainedGpt, pairs
from experiments.pattern_icl.config import Config
from icltheory import training
from icltheory.models import GPT2
from icltheory.patterns import PatternPrompt


def margins_by_length(
    module: GPT2, params: Any, prompt: PatternPrompt
) -> Float[Array, "B l1"]:
    """Margins z F of the query after 0, 1, ..., l contexts, in one forward pass."""
    asked, P = pairs(prompt), prompt.num_examples + 1
    question = jnp.repeat(prompt.x_query[:, None], P, axis=1)
    answers: Any = module.apply({"params": params}, asked.X, asked.y, question)
    return answers * prompt.z[:, None]


@dataclasses.dataclass(frozen=True)
class GptErrors:
    """0-1 errors of GPT-2 after 0, 1, ..., l contexts.

    Attributes:
        sums: Against S_1, (sums, draws, seeds, l + 1).
        inside: Against alpha' on unseen tasks, (fractions, draws, seeds, l + 1).
        outside: Against alpha' at the reference S_1, of the same shape.
    """

    sums: np.ndarray
    inside: np.ndarray
    outside: np.ndarray


def gpt_errors(config: Config, trained: TrainedGpt) -> GptErrors:
    """Errors of all seeds on shared prompts; each sweep is one compiled program."""
    task, length = trained.task, config.figures.num_examples
    alpha = config.figures.relevant_fraction
    key = training.stream_key(config.gpt_seeds[0], "evaluation")

    def of_all(prompt):
        def one(params):
            margins = margins_by_length(trained.module, params, prompt)
            return jnp.mean((~(margins > 0)).astype(jnp.float32), axis=0)

        return jax.lax.map(one, trained.params)

    def draw(S, alpha, own, shifted):
        first, second = jax.random.split(own)
        asked = task.out_of_domain(S, key=first) if shifted else task.held_out()
        asked = asked.with_(relevant_fraction=alpha)
        return of_all(asked.sample(second, length, config.gpt_prompts))

    def table(shifted, sums, alphas):
        keys = jax.random.split(key, config.draws)

        def row(setting):
            S, alpha = setting
            return jax.lax.map(lambda own: draw(S, alpha, own, shifted), keys)

        settings = jnp.asarray(sums, jnp.float32), jnp.asarray(alphas, jnp.float32)
        return np.asarray(jax.jit(lambda s: jax.lax.map(row, s))(settings))

    fractions, several = config.fractions, config.gpt_sums
    one_sum = (config.reference_sum,) * len(fractions)
    shifts = several + one_sum, (alpha,) * len(several) + fractions
    outside = table(True, *shifts)
    inside = table(False, one_sum, fractions)
    return GptErrors(outside[: len(several)], inside, outside[len(several) :])
