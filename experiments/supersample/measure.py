"""Estimates bounds on one sample of prompts, and the error on another."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from experiments.supersample.config import Config
from icltheory import bounds
from icltheory.bounds import SupersampleBound
from icltheory.statistics import Estimate
from icltheory.training import stream_key


@dataclasses.dataclass(frozen=True)
class Case:
    """One learner on one task.

    Attributes:
        family: Which learners it belongs to, and what is varied among them.
        name: Its name in the table.
        x: The number that is varied.
        square_root: The square-root bound.
        optimal: The optimal bound.
        error: Error of generalisation on other prompts.
        train: Loss on the demonstrations of the prompt, there.
        norm: Frobenius norm of all weight matrices, NaN where there are none.
        condition: Their largest condition number.
        theorem2: The corrected Theorem 2, NaN where it does not apply.
    """

    family: str
    name: str
    x: float
    square_root: SupersampleBound
    optimal: SupersampleBound
    error: Estimate
    train: float
    norm: float = float("nan")
    condition: float = float("nan")
    theorem2: float = float("nan")


def judge(
    config: Config,
    family: str,
    name: str,
    x: float,
    losses_of: Callable[[Any], tuple[Any, Any]],
    levels: int | None,
    **more: float,
) -> Case:
    """Evaluates a learner on two samples, each created by ``losses_of(key)``."""
    key = stream_key(config.seed, "evaluation")
    first, second = (losses_of(jax.random.fold_in(key, part)) for part in range(2))
    choice: dict[str, Any] = {"levels": levels, "confidence": config.confidence}
    own, other = in_and_out(*second, levels)
    found = bounds.supersample_bounds(*first, **choice)
    return Case(
        family,
        name,
        x,
        found.difference,
        found.optimal,
        Estimate.of(np.mean(other - own, axis=1)),
        float(np.mean(own)),
        **more,
    )


def in_and_out(losses, chosen, levels: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Quantised losses on the demonstrations of the prompt and on the others."""
    losses, place = np.asarray(losses, float), np.asarray(chosen)[..., None]
    if levels is not None:
        losses = np.round(losses * (levels - 1)) / (levels - 1)
    own = np.take_along_axis(losses, place, axis=2)[..., 0]
    return own, np.take_along_axis(losses, 1 - place, axis=2)[..., 0]


def regression_losses(
    config: Config, predictor: Any, task: Any, num_examples: int
) -> Callable[[Any], tuple[Any, Any]]:
    """Returns a function from a key to the losses of a regression learner."""
    loss = bounds.ClippedSquaredError(config.clip)

    def losses_of(key):
        return bounds.supersample_losses(
            key, predictor, task, num_examples, config.prompts, loss
        )

    return losses_of


def theorem2(config: Config, stack: Any, task: Any, num_examples: int) -> float:
    """The corrected Theorem 2 for a linear attention stack, for losses in [0, 1].

    Its learner sees half of the demonstrations in each step, with Gaussian noise.
    """
    key = stream_key(config.seed, "evaluation")
    prompts = task.sample(key, num_examples, config.theorem2_prompts)
    H, _ = prompts.tokens()
    steps = bounds.noisy_steps(stack, H, num_examples // 2, scale=1 / num_examples)
    return float(bounds.isotropic_bound(steps, 0.5).value)
