"""Learning phases of softmax attention on orthonormal features.

The losses are those of the paper, half the squared error. The library takes the whole:
its step sizes are half of those here, and its losses twice.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.mechanisms.config import Features
from icltheory.regression import balanced_features as flow
from icltheory.regression import features as theory


class Balanced(NamedTuple):
    """Gradient descent on equally likely features, compared with the flow.

    Attributes:
        steps: Steps, (T,).
        losses: Loss of descent, (T,).
        predicted: Loss of the flow at the same times, (T,).
        half: When attention reaches 1/2: descent, flow.
        learned: When the loss reaches the level: descent, flow.
        time_error: Largest relative difference of the time at which an attention is
            reached, over the path.
        loss_error: Largest relative difference of the loss at the same time.
        asymptote: L t at the end over its limit.
        drift: Largest |A + (K - 1) B|.
    """

    steps: np.ndarray
    losses: np.ndarray
    predicted: np.ndarray
    half: tuple[float, float]
    learned: tuple[float, float]
    time_error: float
    loss_error: float
    asymptote: float
    drift: float


def balanced(config: Features, K: int) -> Balanced:
    """Runs descent until the loss reaches its level, and the flow in closed form."""
    eta = config.step_size / 2
    target = 1 - math.sqrt(2 * config.loss_level * (K - 1) / K)
    ends = [float(flow.balanced_time(jnp.asarray(a), K, eta)) for a in (0.5, target)]
    steps = math.ceil(1.02 * ends[1]) + 10

    @jax.jit
    def measured():
        population = theory.FeaturePopulation.infinite(jnp.full(K, 1 / K))
        path = theory.feature_descent(population, eta, steps)
        own, losses = path.own_attention[:, 0], path.losses[:, 0] / 2
        phases = theory.feature_phases(path, 2 * config.loss_level)
        times = flow.balanced_time(own[1:], K, eta)
        at = flow.balanced_attention(path.steps, K, eta)
        predicted = flow.balanced_loss(at, K) / 2
        A, B = path.logits[:, 0, 0], path.logits[:, 0, 1]
        arrays, limit = (path.steps, losses, predicted), flow.loss_asymptote(K, eta)
        numbers = {"half": phases.half[0], "learned": phases.learned[0]}
        return arrays, numbers | {
            "time_error": jnp.max(jnp.abs(times / path.steps[1:] - 1)),
            "loss_error": jnp.max(jnp.abs(predicted / losses - 1)),
            "asymptote": path.losses[-1, 0] * path.steps[-1] / limit,
            "drift": jnp.max(jnp.abs(A + (K - 1) * B)),
        }

    arrays, found = jax.device_get(measured())
    numbers = {name: float(value) for name, value in found.items()}
    half, learned = (numbers["half"], ends[0]), (numbers["learned"], ends[1])
    return Balanced(*arrays, **(numbers | {"half": half, "learned": learned}))


def finite(config: Features, num_examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps and losses in contexts of finite length, for the fewest features."""
    K = config.balanced[0]
    population = theory.FeaturePopulation.finite(jnp.full(K, 1 / K), num_examples)
    eta = config.step_size / 2
    path = theory.feature_descent(population, eta, 3000, record_every=5)
    return np.asarray(path.steps), np.asarray(path.losses[:, 0]) / 2


class Imbalanced(NamedTuple):
    """Gradient descent with one dominant feature.

    Attributes:
        path: The whole path.
        phases: Times of the phases; feature 0 is the dominant one.
    """

    path: theory.FeaturePath
    phases: theory.FeaturePhases


def imbalanced(config: Features) -> Imbalanced:
    """Runs descent with one dominant feature; the others are equally likely."""
    K, p = config.imbalanced, config.dominant
    rare = jnp.full(K - 1, (1 - p) / (K - 1))
    population = theory.FeaturePopulation.infinite(
        jnp.concatenate([jnp.full(1, p), rare])
    )
    eta, steps = config.imbalanced_step_size / 2, config.imbalanced_steps
    path = theory.feature_descent(population, eta, steps)
    phases = theory.feature_phases(path, 2 * config.imbalanced_level)
    return Imbalanced(*jax.tree.map(np.asarray, (path, phases)))
