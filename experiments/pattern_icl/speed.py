"""Iterations to learn against the share of relevant contexts: T ~ alpha^(-2/3)."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from experiments.pattern_icl.config import Config
from icltheory.patterns import scores, train
from icltheory.statistics import Estimate

_KEYS = 12


@dataclasses.dataclass(frozen=True)
class Speed:
    """Iterations until the hinge loss on unseen tasks reaches its target.

    Attributes:
        alphas: Relevant fractions alpha of training.
        steps: Steps of the snapshots.
        hinge: Hinge loss there, (alphas, seeds, snapshots).
        iterations: First crossing of the target, linear between snapshots;
            NaN where there is none, (alphas, seeds).
        slope: Of log iterations against log alpha, of the means over the seeds.
        slope_error: Its standard error over the seeds' own slopes.
    """

    alphas: np.ndarray
    steps: np.ndarray
    hinge: np.ndarray
    iterations: np.ndarray
    slope: float
    slope_error: float


def speed(config: Config) -> Speed:
    """Trains all seeds at all alphas in one program, and finds the iterations."""
    steps, hinge = _hinge(config)
    steps, hinge = np.asarray(steps[0, 0]), np.asarray(hinge)
    return _speed(np.asarray(config.alphas), steps, hinge, config.target)


@functools.partial(jax.jit, static_argnums=0)
def _hinge(config: Config):
    ensemble = config.figures
    model, tasks = ensemble.model(), ensemble.tasks()

    def one(alpha, task, params, key, asked):
        task = task.with_(relevant_fraction=alpha)
        path = train(
            model,
            task,
            params,
            config.alpha_steps,
            key=key,
            step_size=ensemble.step_size,
            batch_size=ensemble.batch_size,
            num_examples=config.alpha_length,
            record_every=config.alpha_every,
        )
        size = config.alpha_length, config.prompts // 4
        prompt = task.held_out().sample(asked, *size)
        look = lambda params: scores(model, params, prompt).hinge  # noqa: E731
        return path.steps, jax.lax.map(look, path.params)

    seeds = jax.vmap(one, in_axes=(None, 0, 0, 0, 0))
    everything = jax.vmap(seeds, in_axes=(0, None, None, None, None))
    return everything(
        jnp.asarray(config.alphas, jnp.float32),
        tasks,
        ensemble.start(tasks),
        ensemble.keys(2),
        ensemble.keys(_KEYS),
    )


def _speed(alphas, steps, hinge, target) -> Speed:
    rows = hinge.reshape(-1, len(steps))
    crossings = np.array([crossing(steps, row, target) for row in rows])
    iterations = crossings.reshape(hinge.shape[:2])
    own = np.array([_slope(alphas, column) for column in iterations.T])
    error = Estimate.of(own).standard_error
    mean = _slope(alphas, iterations.mean(axis=1))
    return Speed(alphas, steps, hinge, iterations, mean, float(error))


def crossing(steps: np.ndarray, values: np.ndarray, target: float) -> float:
    """Step at which values first fall below the target; NaN if they never do."""
    below = np.flatnonzero(values < target)
    if not below.size:
        return math.nan
    i = int(below[0])
    if i == 0:
        return float(steps[0])
    share = (values[i - 1] - target) / (values[i - 1] - values[i])
    return float(steps[i - 1] + share * (steps[i] - steps[i - 1]))


def _slope(alphas, iterations) -> float:
    if not np.all(np.isfinite(iterations)):
        return math.nan
    return float(np.polyfit(np.log(alphas), np.log(iterations), 1)[0])
