"""Baselines of each family of functions, as chosen by Garg et al.

A rule maps prompts to predictions ``(prompts, points)``; those that fit networks or
trees answer the first prompts alone. Rules are compiled once for each config.
"""

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from experiments.garg_linear.networks import network_prefixes
from experiments.garg_linear.trees import tree_prefixes
from icltheory import training
from icltheory.regression import predictors
from icltheory.regression.prompts import PrefixPrompt

if TYPE_CHECKING:
    from experiments.garg_linear.config import Config

Rule = Callable[[PrefixPrompt], Any]
LEAST_SQUARES, AVERAGING, NEAREST = "least squares", "averaging", "3-NN"
LASSO, NETWORK = "Lasso", "two-layer network"
TREE, SIGNS_TREE = "greedy tree", "greedy tree on signs"


def _compiled(predictor: predictors.Predictor) -> Rule:
    """Compiles a predictor of the package as a rule."""
    predict = jax.jit(jax.vmap(predictor.predict_prefixes))
    return lambda prompt: predict(prompt.X, prompt.y, prompt.X_query)


@functools.cache
def _common() -> dict[str, Rule]:
    return {
        LEAST_SQUARES: _compiled(predictors.LeastSquares()),
        NEAREST: _compiled(predictors.NearestNeighbors(3)),
        AVERAGING: _compiled(predictors.Averaging()),
    }


@functools.lru_cache
def linear(config: "Config") -> Mapping[str, Rule]:
    """Baselines of linear functions: least squares, ridge, averaging, neighbours."""
    penalty, common = config.ridge_penalty, _common()
    return {
        LEAST_SQUARES: common[LEAST_SQUARES],
        f"ridge ({penalty:g})": _compiled(predictors.Ridge(penalty)),
        AVERAGING: common[AVERAGING],
        NEAREST: common[NEAREST],
    }


@functools.lru_cache
def sparse(config: "Config") -> Mapping[str, Rule]:
    """Baselines of sparse functions: least squares, Lasso, averaging, neighbours."""
    penalty, common = config.baselines.lasso_penalty, _common()
    return {
        LEAST_SQUARES: common[LEAST_SQUARES],
        f"{LASSO} ({penalty:g})": _compiled(predictors.Lasso(penalty)),
        AVERAGING: common[AVERAGING],
        NEAREST: common[NEAREST],
    }


@functools.lru_cache
def relu_network(config: "Config") -> Mapping[str, Rule]:
    """Baselines of ReLU networks: least squares, neighbours, a two-layer network."""
    common = _common()
    return {
        LEAST_SQUARES: common[LEAST_SQUARES],
        NEAREST: common[NEAREST],
        NETWORK: functools.partial(_network, config),
    }


@functools.lru_cache
def decision_tree(config: "Config") -> Mapping[str, Rule]:
    """Baselines of decision trees: those of ReLU networks, and greedy trees."""
    recipe = config.baselines
    return {
        **relu_network(config),
        TREE: functools.partial(_tree, recipe.prompts, recipe.tree_depth, np.asarray),
        SIGNS_TREE: functools.partial(
            _tree, recipe.prompts, recipe.signs_depth, np.sign
        ),
    }


def _network(config: "Config", prompt: PrefixPrompt) -> Any:
    count, recipe = config.baselines.prompts, config.baselines.network
    key = jax.random.fold_in(training.stream_key(config.seeds[0], "evaluation"), 1)
    return network_prefixes(prompt.X[:count], prompt.y[:count], key, recipe)


def _tree(count: int, depth: int, seen: Callable, prompt: PrefixPrompt) -> Any:
    X, y = seen(prompt.X[:count]), np.asarray(prompt.y[:count])
    return tree_prefixes(np.asarray(X), y, depth)
