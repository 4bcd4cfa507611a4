"""Measures both models at every snapshot on the same prompts."""

import jax
import numpy as np

from experiments._trained import TrainedModels
from experiments.implicit_noise.config import Config, measured_steps
from experiments.implicit_noise.implied import (
    ErrorSplit,
    answers,
    least_squares_weights,
    query_design,
    split,
)
from experiments.implicit_noise.subsets import SubsetNoise, subset_noise
from icltheory import training
from icltheory.regression import Bayes, estimate_risk


def measure_gpt2(config: Config, trained: TrainedModels) -> dict[int, ErrorSplit]:
    """Error of the transformer and its parts, by training step."""
    recipe = config.gpt2
    keys = jax.random.split(training.stream_key(recipe.seeds[0], "evaluation"), 2)
    count = config.eval_prompts
    prompt = recipe.task().sample(keys[0], recipe.num_points - 1, count).prefixes()
    queries = query_design(keys[1], count, config.queries, recipe.dim)
    w_ls = least_squares_weights(prompt)
    parts = {}
    for step in measured_steps(recipe, config.parts):
        values = answers(trained.module, trained.of_seed(0, step), prompt, queries)
        parts[step] = split(values, queries, w_ls, prompt.w)
    return parts


def measure_stack(config: Config, trained: TrainedModels) -> dict[int, SubsetNoise]:
    """Noise of the stack's implicit gradients, by training step."""
    recipe = config.stack
    keys = jax.random.split(training.stream_key(recipe.seeds[0], "evaluation"), 2)
    prompt = recipe.task().sample(keys[0], config.pool, config.subset_prompts)
    return {
        step: subset_noise(
            keys[1], trained.stack(0, step), prompt, config.shots, config.subsets
        )
        for step in measured_steps(recipe, config.parts)
    }


def bayes_with_label_noise(config: Config) -> np.ndarray:
    """Risk / d of the Bayes predictor with noisy labels, by number of examples."""
    recipe = config.gpt2
    key = jax.random.fold_in(training.stream_key(recipe.seeds[0], "evaluation"), 2)
    task, lengths = recipe.task(config.label_noise), range(recipe.num_points)
    risk = estimate_risk(Bayes(task), task, lengths, key=key, num_prompts=4000)
    return np.asarray(risk.mean - task.noise_var) / recipe.dim
