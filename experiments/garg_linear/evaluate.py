"""Errors of the transformer and of the predictors it is compared with."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.garg_linear.config import Config, Setup
from icltheory import training
from icltheory.models.layered import LayeredGPT2
from icltheory.plotting import Curve
from icltheory.regression import predictors, risks
from icltheory.regression.prompts import PrefixPrompt
from icltheory.statistics import Estimate, curve_interval

TRANSFORMER, OPTIMUM = "Transformer", "one-layer optimum"


def evaluation_prompt(setup: Setup) -> PrefixPrompt:
    """Fresh prompts, the same for every model, predictor and step."""
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
    return np.asarray(jnp.stack(per_seed)) / setup.config.dim


def attention_by_layer(
    setup: Setup, params: Any, prompt: PrefixPrompt, prompts: int, points: int
) -> np.ndarray:
    """Attention of the first seed's model, (layers, T, T), a mean over heads.

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


@functools.lru_cache
def _rules(penalty: float) -> dict[str, Any]:
    """The predictors, compiled once however many sets of prompts they see."""
    ridge = functools.partial(predictors.ridge_prefixes, penalty=penalty)
    nearest = functools.partial(predictors.nearest_neighbors_prefixes, k=3)
    rules = {
        "least squares": predictors.ols_prefixes,
        f"ridge ({penalty:g})": ridge,
        "averaging": predictors.averaging_prefixes,
        "3-NN": nearest,
    }
    return {name: jax.jit(rule) for name, rule in rules.items()}


def baseline_errors(config: Config, prompt: PrefixPrompt) -> dict[str, np.ndarray]:
    """Normalised squared errors of the predictors, (prompts, points) each."""
    inputs = (prompt.X, prompt.y, prompt.X_query)
    return {
        name: np.asarray(jnp.square(rule(*inputs) - prompt.y_query)) / config.dim
        for name, rule in _rules(config.ridge_penalty).items()
    }


_bootstrap = jax.jit(curve_interval)


def interval(errors: np.ndarray) -> Curve:
    """Mean over prompts with its 90 % bootstrap interval."""
    limits = _bootstrap(jnp.asarray(errors), jax.random.key(0))
    return Curve(errors.mean(axis=0), np.asarray(limits.low), np.asarray(limits.high))


def transformer_curve(config: Config, errors: np.ndarray) -> Curve:
    """Mean over seeds and prompts; over one seed the interval is that of the prompts.

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
    """Risks that are known in closed form, normalised by d."""
    rules = {
        OPTIMUM: lambda k: risks.linear_attention_optimum(setup.task, k).risk,
        "least squares": functools.partial(risks.least_squares_risk, setup.task),
        "averaging": functools.partial(risks.averaging_risk, setup.task),
    }
    ks = jnp.arange(setup.config.num_points)
    return {
        name: np.asarray(jax.vmap(rule)(ks)) / setup.config.dim
        for name, rule in rules.items()
    }
