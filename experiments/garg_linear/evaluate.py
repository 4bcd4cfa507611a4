"""Errors of the transformer and of its baselines."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.garg_linear.baselines import AVERAGING, LEAST_SQUARES
from experiments.garg_linear.checks import LOWER_BOUND, OPTIMUM, STEPS
from experiments.garg_linear.config import Config, Setup
from icltheory import regression as reg
from icltheory import training
from icltheory.models.layered import LayeredGPT2
from icltheory.plotting import Curve
from icltheory.regression.prompts import PrefixPrompt
from icltheory.statistics import Estimate, curve_interval

TRANSFORMER = "Transformer"


def evaluation_prompt(setup: Setup) -> PrefixPrompt:
    """Draws the evaluation prompts, the same for every model, baseline and step."""
    key = training.stream_key(setup.config.seeds[0], "evaluation")
    count = setup.config.eval_prompts
    return setup.task.sample(key, setup.config.num_points - 1, count).prefixes()


def model_errors(setup: Setup, params: Any, prompt: PrefixPrompt) -> np.ndarray:
    """Normalised squared errors of every seed's model, (seeds, prompts, points)."""
    per_seed = [
        training.prefix_errors(
            setup.model, jax.tree.map(lambda leaf, s=seed: leaf[s], params), prompt
        )
        for seed in range(len(setup.config.seeds))
    ]
    return np.asarray(jnp.stack(per_seed)) / setup.family.normalizer(setup.config)


def attention_by_layer(
    setup: Setup, params: Any, prompt: PrefixPrompt, prompts: int, points: int
) -> np.ndarray:
    """Attention weights of the first seed's model, (layers, T, T), averaged over heads.

    Args:
        setup: The run.
        params: Parameters with a leading axis of seeds.
        prompt: Prompts.
        prompts: How many of them are averaged.
        points: How many of their first points are read.
    """
    model = LayeredGPT2(setup.model)
    own = jax.tree.map(lambda leaf: leaf[0], params)
    hidden = model.embed(
        own, (prompt.X[:prompts, :points], prompt.y[:prompts, :points])
    )
    found = []
    for layer in range(model.num_layers):
        weights = model.attention_weights(layer, own, hidden)
        found.append(np.asarray(weights, float).mean(axis=(0, 1)))
        hidden = model.block(layer, own, hidden)
    return np.stack(found)


def baseline_errors(setup: Setup, prompt: PrefixPrompt) -> dict[str, np.ndarray]:
    """Normalised squared errors of the baselines, (prompts, points) each."""
    found = {}
    for name, rule in setup.family.baselines(setup.config).items():
        answers = np.asarray(rule(prompt))
        misses = answers - np.asarray(prompt.y_query)[: len(answers)]
        found[name] = np.square(misses) / setup.family.normalizer(setup.config)
    return found


_bootstrap = jax.jit(curve_interval)


def interval(errors: np.ndarray) -> Curve:
    """Returns the mean over prompts with its 90 % bootstrap interval."""
    limits = _bootstrap(jnp.asarray(errors), jax.random.key(0))
    return Curve(errors.mean(axis=0), np.asarray(limits.low), np.asarray(limits.high))


def transformer_curve(config: Config, errors: np.ndarray) -> Curve:
    """Returns the mean over seeds and prompts with its 90 % interval.

    With several seeds it also carries the spread between them: Student's 90 % interval
    of the seeds' means is added to that of the prompts in quadrature.
    """
    pooled = interval(errors.mean(axis=0))
    seeds = errors.shape[0]
    if seeds == 1:
        return pooled
    spread = Estimate.of(np.asarray(errors).mean(axis=1)).half_width(0.9)
    below, above = pooled.mean - pooled.low, pooled.high - pooled.mean
    return Curve(
        pooled.mean,
        pooled.mean - np.hypot(below, spread),
        pooled.mean + np.hypot(above, spread),
    )


def exact_curves(setup: Setup) -> dict[str, np.ndarray]:
    """Normalised exact risks, empty for families without them."""
    if setup.family.moments is None:
        return {}
    task = setup.family.moments.task(setup.config)
    rules = {
        OPTIMUM: lambda k: reg.optimum(reg.LinearStep, task, k).risk,
        LEAST_SQUARES: functools.partial(reg.risk, reg.LeastSquares(), task),
        AVERAGING: functools.partial(reg.risk, reg.Averaging(), task),
    }
    ks = jnp.arange(setup.config.num_points)
    normalizer = setup.family.normalizer(setup.config)
    found = {
        name: np.asarray(jax.vmap(rule)(ks)) / normalizer
        for name, rule in rules.items()
    }
    return found | _depth_curves(setup.config)


def _depth_curves(config: Config) -> dict[str, np.ndarray]:
    """Risk of the best gradient steps, and the bound for linear layers, at equal depth.

    Both are of variance 1 per dimension, as are the normalised weights. The lower bound
    for more than three layers is zero to many digits, and its moments take long.
    """
    layers, task = config.num_layers, reg.LinearPopulation.isotropic(config.dim)
    limits: dict[str, Callable[[int], Any]] = {
        STEPS: lambda k: reg.optimum(reg.Steps(layers), task, k)
    }
    if layers <= 3:
        limits[LOWER_BOUND] = lambda k: reg.depth.depth_floor(layers, task, k)
    ks = range(1, config.num_points)
    return {
        f"{name} ({layers})": np.array(
            [1.0, *(float(limit(k).risk) / config.dim for k in ks)]
        )
        for name, limit in limits.items()
    }


def least_squares_loss(setup: Setup, dims: int, points: int) -> float | None:
    """Exact training loss of least squares on prompts of a curriculum.

    It is ``None`` where y is not linear in x.
    """
    config, moments = setup.config, setup.family.moments
    if moments is None:
        return None
    if config.targets == "posterior":
        return 0.0  # least squares is the posterior mean
    unknown = sum(max(dims - k, 0) for k in range(points)) / points
    return unknown * moments.signal(config, dims) / dims
