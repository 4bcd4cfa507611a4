"""Measures the distance of every model to the Bayes predictor, and its error."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.garg_sweep.config import Config
from icltheory import regression as reg
from icltheory import training
from icltheory.regression.prompts import PrefixPrompt
from icltheory.statistics import Estimate


@dataclasses.dataclass(frozen=True)
class ReferenceRisks:
    """Reference risks for models of one noise variance, divided by d, by prefix.

    Attributes:
        bayes: Squared errors of the posterior mean (ridge with the noise as penalty,
            least squares without noise), (prompts, P).
        bayes_risk: Exact risk of the posterior mean given the inputs, (prompts, P).
        least_squares_risk: Exact, (P,); infinite near k = d with noise.
        one_layer: Exact risk of the best layer of linear attention, (P,).
    """

    bayes: np.ndarray
    bayes_risk: np.ndarray
    least_squares_risk: np.ndarray
    one_layer: np.ndarray


@dataclasses.dataclass(frozen=True)
class SweepMeasurements:
    """Errors of the grid; arrays begin with (noise, width, rate, seed).

    All are squared, against <w, x> without noise, divided by d; NaN where a model
    diverged.

    Attributes:
        errors: Mean over prompts, by prefix.
        distances: Mean squared distance to the Bayes predictor, by prefix.
        identity_z: z-score of error = Bayes error + distance, mean over prefixes.
        diverged_at: Step of a member's first loss that was not finite, or -1.
        lines: By noise.
    """

    errors: np.ndarray
    distances: np.ndarray
    identity_z: np.ndarray
    diverged_at: np.ndarray
    lines: list[ReferenceRisks]


def measure(config: Config, parts: Sequence[Any]) -> SweepMeasurements:
    """Measures all models on the same inputs, tasks and noise up to its scale."""
    grid = len(config.noise_vars), len(config.learning_rates), len(config.recipe.seeds)
    rules, found, lines = _rules(config), [], []
    weights = [jax.device_get(part.params) for part in parts]
    for index, noise_var in enumerate(config.noise_vars):
        task = config.recipe.task(noise_var)
        key = training.stream_key(config.recipe.seeds[0], "evaluation")
        points = config.recipe.num_points - 1
        prompt = task.sample(key, points, config.eval_prompts).prefixes()
        bayes = rules[index](prompt.X, prompt.y)
        lines.append(_lines(config, task, prompt, bayes))
        for width, params in zip(config.widths, weights, strict=True):
            own = jax.tree.map(
                lambda leaf, i=index: leaf.reshape(*grid, *leaf.shape[1:])[i], params
            )
            found.append(_scores(config.model(width), own, prompt, bayes))
    shape = len(config.noise_vars), len(config.widths), *grid[1:]
    errors, distances, z = (
        np.stack(values).reshape(*shape, *values[0].shape[2:])
        for values in zip(*found, strict=True)
    )
    at = np.stack([np.asarray(part.diverged_at).reshape(grid) for part in parts], 1)
    fallen = at >= 0
    for values in (errors, distances, z):
        values[fallen] = np.nan
    return SweepMeasurements(errors, distances, z, at, lines)


def _rules(config: Config) -> list[Any]:
    """Compiled posterior means, one for each noise variance."""
    return [
        jax.jit(jax.vmap(reg.Ridge(noise_var).predict_prefixes))
        for noise_var in config.noise_vars
    ]


def _lines(
    config: Config, task: Any, prompt: PrefixPrompt, bayes: Any
) -> ReferenceRisks:
    truth, d = task.evaluate(prompt.w, prompt.X), config.recipe.dim
    ks = jnp.arange(config.recipe.num_points)
    given = jax.jit(jax.vmap(lambda X: reg.Bayes(task).risks_given(task, X)))

    def exact(rule):
        risks = jax.jit(jax.vmap(rule))(ks) - task.noise_var
        return np.asarray(risks, np.float64) / d

    return ReferenceRisks(
        np.asarray(jnp.square(bayes - truth), np.float64) / d,
        np.asarray(given(prompt.X), np.float64) / d,
        exact(lambda k: reg.risk(reg.LeastSquares(), task, k)),
        exact(lambda k: reg.optimum(reg.LinearStep, task, k).risk),
    )


@functools.partial(jax.jit, static_argnums=0)
def _answers(model: Any, params: Any, prompt: PrefixPrompt) -> jax.Array:
    """Predictions of models, one after the other, (rates, seeds, prompts, P)."""

    def one(own):
        return model.apply({"params": own}, prompt.X, prompt.y)

    return jax.lax.map(lambda rate: jax.lax.map(one, rate), params)


def _scores(
    model: Any, params: Any, prompt: PrefixPrompt, bayes: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Errors and distances by prefix, and the z-score of the risk identity."""
    d = prompt.dim
    answers = np.asarray(_answers(model, params, prompt), np.float64)
    # A diverged model may have non-finite predictions, which are not counted.
    answers = np.where(np.isfinite(answers), answers, 0.0)
    truth = np.einsum("bpd,bd->bp", *(np.asarray(a) for a in (prompt.X, prompt.w)))
    bayes = np.asarray(bayes, np.float64)[None, None]
    truth = np.asarray(truth, np.float64)[None, None]
    errors = (answers - truth) ** 2 / d
    distances = (answers - bayes) ** 2 / d
    # For any model, the excess risk over the posterior mean is the distance to it.
    gap = (errors - (bayes - truth) ** 2 / d - distances).mean(axis=-1)
    mean, error = Estimate.of(gap, axis=-1)
    return errors.mean(axis=2), distances.mean(axis=2), mean / error
