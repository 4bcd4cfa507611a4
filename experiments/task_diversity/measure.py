"""Distances between a transformer, discrete MMSE and ridge, and their errors."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.task_diversity.config import Config
from experiments.task_diversity.pool import Pool, evaluation_key
from icltheory.regression import LinearPopulation, predictors
from icltheory.regression.prompts import PrefixPrompt

MODEL, DMMSE, RIDGE = "transformer", "dMMSE", "ridge"
POOL, NEW = "pool", "new"
_PROMPTS_AT_ONCE = 512

Scores = dict[str, Any]


def rules(task: LinearPopulation, pool: Pool, size: int) -> dict[str, Callable]:
    """Returns the two Bayes predictors; without a pool both are ridge."""
    noise_var = task.noise_var
    ridge = jax.vmap(predictors.Ridge(noise_var).predict_prefixes)
    if size == 0:
        return {DMMSE: ridge, RIDGE: ridge}
    members = pool.members(jnp.arange(size))
    discrete = predictors.DiscreteMMSE(members, noise_var)
    return {DMMSE: jax.vmap(discrete.predict_prefixes), RIDGE: ridge}


def scores(
    task: LinearPopulation, answers: dict[str, Any], prompt: PrefixPrompt
) -> Scores:
    """Squared errors against <w, x> and squared distances, for each prompt.

    Means over the prefixes k = 0, ..., P - 1, divided by d as in Raventos et al.;
    a distance is named ``a - b``.
    """
    truth = task.evaluate(prompt.w, prompt.X_query)

    def gap(a, b):
        return jnp.mean(jnp.square(a - b), axis=-1) / task.dim

    names = list(answers)
    errors = {name: gap(answers[name], truth) for name in names}
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    return errors | {f"{a} - {b}": gap(answers[a], answers[b]) for a, b in pairs}


def compiled_scores(config: Config) -> dict[int, Callable]:
    """Returns a function of (parameters, the pool's key, prompts) by pool size."""
    task = config.recipe.task()
    return {size: _scorer(config, task, size) for size in config.pool_sizes}


def measure(
    config: Config,
    params: Any,
    scored: dict[int, Callable],
    names: Sequence[str] = (POOL, NEW),
) -> list[dict[str, Scores]]:
    """Scores every run on prompts of its pool and on prompts with new tasks.

    Args:
        config: The experiment.
        params: Parameters with a leading axis of runs.
        scored: What :func:`compiled_scores` gives; compiled once for all calls.
        names: The sources of prompts.

    Returns:
        For each of ``config.runs()`` the scores by source, one number a prompt.
    """
    recipe = config.recipe
    task = recipe.task()
    found = []
    for index, (size, seed) in enumerate(config.runs()):
        own = jax.tree.map(lambda leaf, i=index: leaf[i], params)
        pool = Pool.of_seed(task, seed, size)
        sources = {POOL: (pool, "prompts"), NEW: (task, "new prompts")}
        out = {}
        for name in names:
            source, use = sources[name]
            args = evaluation_key(seed, use), recipe.num_points - 1
            prompt = source.sample(*args, config.eval_prompts).prefixes()
            out[name] = jax.device_get(scored[size](own, pool.key, prompt))
        found.append(out)
    return found


def closeness(config: Config, params: Any, scored: dict[int, Callable]) -> list[float]:
    """log10 of distance to dMMSE over distance to ridge for each run, on new tasks.

    Negative values mean closer to dMMSE.
    """
    found = []
    for run in measure(config, params, scored, (NEW,)):
        to_dmmse, to_ridge = (
            run[NEW][f"{MODEL} - {name}"].mean(dtype=float) for name in (DMMSE, RIDGE)
        )
        found.append(float(np.log10(to_dmmse / to_ridge)))
    return found


def _scorer(config: Config, task: LinearPopulation, size: int) -> Callable:
    """Returns a compiled function for the scores of one pool size, batch by batch."""
    module = config.recipe.module()

    @jax.jit
    def scored(params, key, prompt):
        known = rules(task, Pool(task, key, size), size)

        def one(prompt):
            batch = jax.tree.map(lambda leaf: leaf[None], prompt)
            inputs = batch.X, batch.y
            answers = {MODEL: module.apply({"params": params}, *inputs)}
            answers |= {name: rule(*inputs) for name, rule in known.items()}
            return jax.tree.map(lambda s: s[0], scores(task, answers, batch))

        return jax.lax.map(one, prompt, batch_size=_PROMPTS_AT_ONCE)

    return scored
