"""Measures errors of trained models and computes the theoretical risks."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from experiments._trained import TrainedModels
from experiments.ltb_gpt2.config import Config
from icltheory import regression as reg
from icltheory import training
from icltheory.regression import LinearPopulation
from icltheory.regression.prompts import Prompt
from icltheory.statistics import Estimate


@dataclasses.dataclass(frozen=True)
class References:
    """Theoretical risks at one prior mean, including the noise of the query's label.

    Attributes:
        block: Minimal risk of the linear transformer block, the same at every mean.
        attention: Risk of the best single layer of linear attention found.
        attention_bound: What Theorem 4.1 says no such layer falls below.
        attention_sure: The same with the constant 1 / (M + 1).
        step_from_zero: Best preconditioned step of gradient descent from zero.
        prior_mean: Risk of the answer <beta*, x>, tr(H Psi) + sigma^2.
        least_squares: Risk of least squares, without knowledge of beta*.
        bayes: Average Bayes risk, the same at every mean.
        bayes_error: Its standard error over the inputs.
    """

    block: float
    attention: float
    attention_bound: float
    attention_sure: float
    step_from_zero: float
    prior_mean: float
    least_squares: float
    bayes: float
    bayes_error: float


@functools.cache
def references(config: Config, mean: float) -> References:
    """Computes the theoretical risks for the prompts of one column."""
    found = _exact(config, mean)
    prior_mean = config.recipe.dim + config.recipe.noise_var
    others = {name: float(risk) for name, risk in found.items()}
    return References(prior_mean=prior_mean, **others)


@partial(jax.jit, static_argnames="config")
def _exact(config, mean):
    M, task = config.num_examples, prior_task(config, mean)
    key_inputs, key_starts = jax.random.split(jax.random.key(0))
    block = reg.optimum(reg.LTB, task, M).risk
    gap = reg.gap(task, M)
    average = reg.estimate_risk(
        reg.Bayes(task), task, M, key=key_inputs, num_prompts=config.bayes_draws
    )
    return {
        "block": block,
        "attention": reg.optimum(
            reg.LSA, task, M, key=key_starts, num_starts=config.lsa_starts
        ).risk,
        "attention_bound": block + gap.lower_instance,
        "attention_sure": block + gap.lower,
        "step_from_zero": reg.optimum(reg.LinearStep, task, M).risk,
        "least_squares": reg.risk(reg.LeastSquares(), task, M),
        "bayes": average.mean,
        "bayes_error": average.standard_error,
    }


def evaluation_prompt(config: Config, mean: float) -> Prompt:
    """Draws evaluation prompts whose inputs and noise are the same for any mean."""
    key = training.stream_key(config.recipe.seeds[0], "evaluation")
    return prior_task(config, mean).sample(
        key, config.num_examples, config.eval_prompts
    )


def course(trained: TrainedModels, prompt: Prompt) -> dict[int, "Score"]:
    """Scores at the snapshots, by step."""
    return {
        step: Score.of(model_errors(trained, prompt, step))
        for step in sorted(trained.snapshots)
    }


def model_errors(
    trained: TrainedModels, prompt: Prompt, step: int | None = None
) -> np.ndarray:
    """Squared errors, (seeds, prompts), one seed at a time to save memory."""
    each = (trained.of_seed(i, step) for i in range(len(trained.recipe.seeds)))
    return np.stack([np.asarray(_errors(trained.module, one, prompt)) for one in each])


@partial(jax.jit, static_argnames="module")
def _errors(module, params, prompt):
    inputs = prompt.X, prompt.y, prompt.x_query
    answers = module.apply({"params": params}, *inputs, method="predict")
    return jnp.square(answers - prompt.y_query)


def rule_scores(config: Config, mean: float) -> dict[str, "Score"]:
    """Scores of predictors with known risk on the same prompts: Bayes and ridge."""
    errors = _rule_errors(config, mean)
    return {name: Score.of(np.asarray(given)[None]) for name, given in errors.items()}


@partial(jax.jit, static_argnames="config")
def _rule_errors(config, mean):
    task, prompt = prior_task(config, mean), evaluation_prompt(config, mean)
    answer = jax.vmap(reg.Bayes(task).predict)(prompt.X, prompt.y, prompt.x_query)
    prior = jnp.sum(prompt.x_query * jnp.asarray(task.task_mean)[None], axis=1)
    answers = {"Bayes": answer, "<beta*, x>": prior}
    return {name: (y - prompt.y_query) ** 2 for name, y in answers.items()}


def prior_task(config: Config, mean: float) -> LinearPopulation:
    """Returns the regression task of one column."""
    task = dataclasses.replace(config.recipe, task_mean=0.0).task()
    return task.with_(task_mean=task.task_mean + mean)


@dataclasses.dataclass(frozen=True)
class Score:
    """Mean squared error of a cell.

    Attributes:
        mean: Over seeds and prompts.
        seed_error: Standard error over the seeds; NaN for one.
        prompt_error: Standard error over the prompts, which the seeds share.
        per_seed: Mean of each seed.
        per_seed_error: Standard error over the prompts of each seed's mean.
    """

    mean: float
    seed_error: float
    prompt_error: float
    per_seed: tuple[float, ...]
    per_seed_error: tuple[float, ...]

    @classmethod
    def of(cls, errors: np.ndarray) -> "Score":
        """Computes the score from errors (seeds, prompts)."""
        errors = np.asarray(errors, np.float64)
        by_seed = errors.mean(axis=1)
        return cls(
            mean=float(by_seed.mean()),
            seed_error=_standard_error(by_seed),
            prompt_error=_standard_error(errors.mean(axis=0)),
            per_seed=tuple(by_seed.tolist()),
            per_seed_error=tuple(_standard_error(row) for row in errors),
        )

    @classmethod
    def joined(cls, parts: Sequence["Score"]) -> "Score":
        """Combines scores of runs with different seeds and prompts."""
        by_seed = [value for part in parts for value in part.per_seed]
        sums = [part.prompt_error * len(part.per_seed) for part in parts]
        return cls(
            mean=float(np.mean(by_seed)),
            seed_error=_standard_error(np.array(by_seed)),
            prompt_error=math.hypot(*sums) / len(by_seed),
            per_seed=tuple(by_seed),
            per_seed_error=tuple(e for part in parts for e in part.per_seed_error),
        )

    @property
    def interval(self) -> tuple[float, float]:
        """Returns the 90 % interval from the spread over seeds and over prompts.

        Seeds are few: their quantile is Student's.
        """
        half = 1.645 * self.prompt_error
        count = len(self.per_seed)
        if count > 1:
            seeds = Estimate(self.mean, self.seed_error, count - 1)
            half = math.hypot(seeds.half_width(0.9), half)
        return self.mean - half, self.mean + half


def _standard_error(sample: np.ndarray) -> float:
    return float(Estimate.of(sample).standard_error)
