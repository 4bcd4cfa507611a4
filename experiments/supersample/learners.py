"""The learners for regression and patterns, and what is varied among them."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments._patterns import TrainedEnsemble
from experiments._trained import TrainedModels
from experiments.supersample.config import Config
from experiments.supersample.measure import (
    Case,
    judge,
    regression_losses,
    theorem2,
)
from icltheory import bounds, constructions
from icltheory.models import LayeredGPT2
from icltheory.patterns import PatternLearner
from icltheory.pruning import module_spectra, prune_module
from icltheory.regression import LinearPopulation, predictors
from icltheory.training import stream_key


def descent(config: Config) -> Iterator[Case]:
    """Evaluates tuned gradient descent, ridge regression and least squares."""
    dim, N = config.linear.dim, config.linear.num_points - 1
    task = LinearPopulation.isotropic(dim, config.noise_var)
    key = stream_key(config.seed, "evaluation")
    drawn = task.sample(jax.random.fold_in(key, 2), N, 4096)
    points = drawn.X, drawn.y, drawn.x_query, drawn.y_query
    for steps in config.descent_steps:
        size = predictors.tune_step_size(*points, steps)
        stack = constructions.gradient_descent(jnp.full(steps, size), dim)
        yield judge(
            config,
            "gradient descent",
            f"gradient descent, {steps} step{'s' * (steps > 1)}",
            steps,
            regression_losses(config, stack, task, N),
            config.levels,
            theorem2=theorem2(config, stack, task, N),
        )

    ridge, least_squares = predictors.Ridge(config.noise_var), predictors.LeastSquares()
    for name, rule in (("ridge (Bayes)", ridge), ("least squares", least_squares)):
        losses_of = regression_losses(config, rule, task, N)
        yield judge(config, "estimators", name, 0, losses_of, config.levels)


def stacks(config: Config, trained: list[TrainedModels]) -> Iterator[Case]:
    """Evaluates trained stacks of linear attention."""
    for models in trained:
        layers, N = models.recipe.num_layers, models.recipe.num_points - 1
        task = LinearPopulation.isotropic(models.recipe.dim, config.noise_var)
        learner = models.module, models.of_seed(0)
        yield judge(
            config,
            "linear stack",
            f"trained linear stack, {layers} layer{'s' * (layers > 1)}",
            layers,
            regression_losses(config, learner, task, N),
            config.levels,
            theorem2=theorem2(config, models.stack(), task, N),
        )


def gpt2(config: Config, trained: TrainedModels) -> Iterator[Case]:
    """Evaluates GPT-2 over training steps, shots, label noise and kept rank."""
    N, last = config.shots[-1], trained.of_seed(0)
    whole = _gpt2(config, trained, last, N, 0.0)
    for step in sorted(trained.snapshots):
        params = trained.of_seed(0, step)
        ends = step == config.gpt2.steps
        found = whole if ends else _gpt2(config, trained, params, N, 0.0)
        yield _named(found, "training", f"step {step}", step)
    for shots in config.shots:
        found = whole if shots == N else _gpt2(config, trained, last, shots, 0.0)
        yield _named(found, "shots", f"N = {shots}", shots)
    for noise in config.noises:
        found = _gpt2(config, trained, last, N, noise) if noise else whole
        yield _named(found, "label noise", f"noise {noise:g}", noise)
    for rank in config.ranks:
        pruned = prune(trained, last, 1 - rank / config.gpt2.width)
        full = rank == config.gpt2.width
        found = whole if full else _gpt2(config, trained, pruned, N, 0.0)
        yield _named(found, "rank kept", f"rank {rank}", rank)


def _named(case: Case, family: str, name: str, x: float) -> Case:
    return dataclasses.replace(
        case, family=f"GPT-2, {family}", name=f"GPT-2, {name}", x=x
    )


def _gpt2(config, trained, params, N, noise) -> Case:
    task = LinearPopulation.isotropic(config.gpt2.dim, noise)
    return judge(
        config,
        "GPT-2",
        "GPT-2",
        0,
        regression_losses(config, (trained.module, params), task, N),
        config.levels,
        **weights(LayeredGPT2(trained.module), params),
    )


def prune(trained: TrainedModels, params: Any, rate: float) -> Any:
    """Clips all matrices of all layers at one rate."""
    model = LayeredGPT2(trained.module)
    for layer in range(model.num_layers if rate else 0):
        for module in ("attn", "mlp"):
            params = prune_module(
                model, params, layer, module, rate, rule="nearest", at_least_one=True
            )
    return params


def weights(model: Any, params: Any) -> dict[str, float]:
    """Norm of all matrices together, and the largest condition number."""
    spectra = module_spectra(model, params)
    squares = sum(float(np.sum(np.square(one.singular_values))) for one in spectra)
    largest = max(float(one.condition_number) for one in spectra)
    return {"norm": squares**0.5, "condition": largest}


def patterns(config: Config, trained: TrainedEnsemble) -> Iterator[Case]:
    """Evaluates the pattern transformer over training steps, with the 0-1 loss."""
    first = jax.tree.map(lambda leaf: leaf[0], (trained.tasks, trained.path.params))
    task, path = first
    model, N = config.patterns.model(), config.pattern_shots

    def points(key, num_points, num_prompts):
        prompt = task.sample(key, num_points, num_prompts)
        return prompt.X, prompt.y

    for step in config.pattern_steps:
        place = step // config.patterns.record_every
        params = jax.tree.map(lambda leaf, place=place: leaf[place], path)
        learner = PatternLearner(model, params, task.label_embedding)

        def losses_of(key, learner=learner):
            return bounds.supersample_losses(
                key, learner, points, N, config.prompts, bounds.sign_error
            )

        yield judge(
            config,
            "pattern transformer",
            f"pattern transformer, step {step}",
            step,
            losses_of,
            None,
            **weights(model, params),
        )


def recipes(config: Config) -> list[Any]:
    """Returns the recipes of the linear stacks."""
    return [
        dataclasses.replace(config.linear, num_layers=layers)
        for layers in config.linear_layers
    ]
