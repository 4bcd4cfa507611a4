"""Risks of the two Bayes predictors: ridge by an exact average, dMMSE by sampling."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from experiments.task_diversity.config import Config
from experiments.task_diversity.measure import DMMSE, NEW, POOL, RIDGE, rules, scores
from experiments.task_diversity.pool import Pool, evaluation_key
from icltheory.regression import Bayes, LinearStep, optimum
from icltheory.statistics import Estimate


@dataclasses.dataclass(frozen=True)
class Theory:
    """Theoretical risks to compare with the transformers, as in :func:`scores`.

    Attributes:
        ridge: Average risk of ridge, the Bayes risk of new tasks: only the inputs are
            sampled. Over pools it is also ridge's risk on their tasks, as a task of
            a pool is Gaussian.
        one_layer: Exact risk of the best layer of linear attention on new tasks.
        dmmse: By source and pool size, averaged over pools that no run has seen.
        ridge_sampled: Ridge on the same prompts.
        ridge_minus_dmmse: Their paired difference.
    """

    ridge: Estimate
    one_layer: float
    dmmse: dict[str, list[Estimate]]
    ridge_sampled: dict[str, list[Estimate]]
    ridge_minus_dmmse: dict[str, list[Estimate]]


def theory(config: Config) -> Theory:
    """Computes the theoretical risks for every finite pool size."""
    sampled = [_over_pools(config, size) for size in config.finite_sizes]

    def column(value):
        return {
            source: [Estimate.of(np.asarray(value(at[source]))) for at in sampled]
            for source in (POOL, NEW)
        }

    return Theory(
        ridge=ridge_line(config),
        one_layer=one_layer_line(config),
        dmmse=column(lambda at: at[DMMSE]),
        ridge_sampled=column(lambda at: at[RIDGE]),
        ridge_minus_dmmse=column(lambda at: at[RIDGE] - at[DMMSE]),
    )


def ridge_line(config: Config) -> Estimate:
    """Risk of ridge on new tasks, averaged over the prefixes."""
    task, seed = config.recipe.task(), config.recipe.seeds[0]
    key = jax.random.fold_in(evaluation_key(seed, "theory"), 0)
    X = task.sample_inputs(key, config.recipe.num_points, config.ridge_draws)
    given = jax.jit(jax.vmap(lambda X: Bayes(task).risks_given(task, X)))(X)
    return Estimate.of(np.asarray(given.mean(axis=-1), np.float64) / task.dim)


def one_layer_line(config: Config) -> float:
    """Exact risk of the best one-layer linear attention for each prefix, averaged."""
    task = config.recipe.task()
    best = [
        optimum(LinearStep, task, k).risk - task.noise_var
        for k in range(config.recipe.num_points)
    ]
    return float(jnp.mean(jnp.stack(best))) / task.dim


def _over_pools(config: Config, size: int) -> dict[str, dict[str, np.ndarray]]:
    """Scores of both predictors, one value per pool."""
    recipe = config.recipe
    task, examples = recipe.task(), recipe.num_points - 1

    def one(key):
        drawn, inside, outside = jax.random.split(key, 3)
        pool = Pool(task, drawn, size)
        known = rules(task, pool, size)
        out = {}
        for name, source, draw in ((POOL, pool, inside), (NEW, task, outside)):
            prompt = source.sample(draw, examples, config.theory_prompts).prefixes()
            answers = {r: rule(prompt.X, prompt.y) for r, rule in known.items()}
            found = scores(task, answers, prompt)
            out[name] = {r: jnp.mean(value) for r, value in found.items()}
        return out

    root = evaluation_key(recipe.seeds[0], "theory")
    keys = jax.random.split(jax.random.fold_in(root, 1), config.theory_pools)
    return jax.device_get(jax.jit(lambda keys: jax.lax.map(one, keys))(keys))
