"""Families of functions for prompts, with their tasks, baselines and checks."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from experiments._frame.report import Check, Claim
from experiments.garg_linear import baselines, checks
from icltheory.regression import (
    DecisionTree,
    LinearPopulation,
    ReluNetwork,
    SparseLinearRegression,
)

if TYPE_CHECKING:
    from experiments.garg_linear.config import Config


@dataclasses.dataclass(frozen=True)
class Moments:
    """Second moments of a family of linear functions, which decide exact risks.

    Risks of least squares, averaging and linear attention are quadratic in the weights
    w, so that they are those of Gaussian weights with the same E ww'.

    Attributes:
        task: The Gaussian task with the same moments.
        signal: E |w|^2 over the first coordinates, as many as are active.
    """

    task: Callable[["Config"], LinearPopulation]
    signal: Callable[["Config", int], float]


@dataclasses.dataclass(frozen=True)
class Family:
    """One family of functions.

    Attributes:
        title: What is learned in context, for titles; fields such as
            ``{config.family.sparsity}`` are filled in.
        task: The distribution of prompts.
        normalizer: What squared errors are divided by, as in Garg's code: the variance
            of the labels.
        unit: The normaliser in words.
        points_per_dim: Examples for each dimension in the longest prompt.
        baselines: The methods beside the transformer.
        reference: The method that the transformer is drawn beside as it trains.
        checks: What a run of a preset must show.
        claims: What Garg et al. say, beside what was measured.
        moments: Second moments of the weights; ``None`` where y is not linear in x.
        has_posterior: Whether posterior means are known, as targets of the training.
        shifts: Whether Garg's evaluation settings are made for it.
    """

    title: str
    task: Callable[["Config"], Any]
    normalizer: Callable[["Config"], float]
    unit: str
    points_per_dim: int
    baselines: Callable[["Config"], Mapping[str, baselines.Rule]]
    reference: str
    checks: Callable[[checks.Measured], Sequence[Check]]
    claims: Callable[[checks.Measured], Sequence[Claim]] = lambda measured: ()
    moments: Moments | None = None
    has_posterior: bool = False
    shifts: bool = False


def _linear_task(config: "Config") -> LinearPopulation:
    return LinearPopulation.isotropic(config.dim, dtype=jnp.float32)


def _sparse_moments(config: "Config") -> LinearPopulation:
    task, share = _linear_task(config), config.family.sparsity / config.dim
    return task.with_(task_cov=share * task.task_cov)


FAMILIES = {
    "linear": Family(
        title="In-context linear regression",
        task=_linear_task,
        normalizer=lambda config: config.dim,
        unit="d",
        points_per_dim=2,
        baselines=baselines.linear,
        reference=baselines.LEAST_SQUARES,
        checks=checks.linear,
        claims=checks.linear_claims,
        moments=Moments(_linear_task, lambda config, active: active),
        has_posterior=True,
        shifts=True,
    ),
    "sparse": Family(
        title="Sparse linear regression in context, s = {config.family.sparsity}",
        task=lambda config: SparseLinearRegression(
            config.dim, config.family.sparsity, dtype=jnp.float32
        ),
        normalizer=lambda config: config.family.sparsity,
        unit="s",
        points_per_dim=2,
        baselines=baselines.sparse,
        reference=baselines.LEAST_SQUARES,
        checks=checks.sparse,
        claims=checks.sparse_claims,
        moments=Moments(
            _sparse_moments, lambda config, active: min(config.family.sparsity, active)
        ),
    ),
    "relu_network": Family(
        title="Two-layer ReLU networks in context",
        task=lambda config: ReluNetwork(config.dim, config.family.hidden, jnp.float32),
        normalizer=lambda config: config.dim,
        unit="d",
        points_per_dim=5,
        baselines=baselines.relu_network,
        reference=baselines.NETWORK,
        checks=checks.relu_network,
        claims=checks.relu_claims,
    ),
    "decision_tree": Family(
        title="Decision trees in context",
        task=lambda config: DecisionTree(config.dim, config.family.depth, jnp.float32),
        normalizer=lambda config: 1.0,
        unit="1",
        points_per_dim=5,
        baselines=baselines.decision_tree,
        reference=baselines.SIGNS_TREE,
        checks=checks.decision_tree,
        claims=checks.tree_claims,
    ),
}
