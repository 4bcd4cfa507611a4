"""Gradient descent on the exact risk and on samples, compared with the flow."""

from typing import NamedTuple

import jax
import jax.flatten_util
import numpy as np

from experiments.gradient_flow.config import Config
from experiments.gradient_flow.paths import draw_start
from icltheory import regression as reg
from icltheory.regression import LinearPopulation, descend, flow
from icltheory.statistics import Estimate

RECORDS = 100


class Descents(NamedTuple):
    """Excess risks of the flow and of the descents over time.

    Attributes:
        largest_step: 2 over the largest curvature at the start and at the optimum.
        flow: Times and excess of the flow.
        steps: Times and excess of gradient descent, by share of the largest step.
        distances: Largest distance of Gamma from the flow's, by the same.
        sampled_times: Times of descent on samples.
        sampled: Its excess, (seeds, times), by batch size.
        settled: Mean excess over the last quarter and its standard error, by batch.
    """

    largest_step: float
    flow: tuple[np.ndarray, np.ndarray]
    steps: dict[float, tuple[np.ndarray, np.ndarray]]
    distances: dict[float, float]
    sampled_times: np.ndarray
    sampled: dict[int, np.ndarray]
    settled: dict[int, tuple[float, float]]


def measure_descents(config: Config) -> Descents:
    """Measures flow and descents on one problem with H = Psi = I."""
    problem = isotropic(config)
    M, start = config.num_examples, draw_start(config, config.descent_dim)
    largest = largest_step(problem, M, start)
    eta = config.sgd_share * largest
    end = eta * config.sgd_steps
    every = config.sgd_steps // 40
    times = np.append(0, np.geomspace(end / 1e4, end, config.points - 1))
    smooth = flow(start, problem, M, times)
    steps, distances = {}, {}
    for share in config.step_shares:
        step = share * largest
        apart = int(np.ceil(end / step / RECORDS))  # equally many records
        path = descend(start, problem, M, step, apart * RECORDS, record_every=apart)
        exact = flow(start, problem, M, path.times)
        steps[share] = (np.asarray(path.times), np.asarray(path.excess))
        distances[share] = float(np.abs(path.model.Gamma - exact.model.Gamma).max())
    sampled = {}
    for batch in config.batch_sizes:
        keys = jax.random.split(jax.random.key(config.seed), config.seeds)

        def run(key, batch=batch):
            return descend(
                start,
                problem,
                M,
                eta,
                config.sgd_steps,
                key=key,
                batch_size=batch,
                record_every=every,
            ).excess

        sampled[batch] = np.asarray(jax.lax.map(run, keys))
    at = eta * np.arange(0, config.sgd_steps + 1, every)
    return Descents(
        largest_step=largest,
        flow=(times, np.asarray(smooth.excess)),
        steps=steps,
        distances=distances,
        sampled_times=at,
        sampled=sampled,
        settled={batch: _settled(values) for batch, values in sampled.items()},
    )


def isotropic(config: Config) -> LinearPopulation:
    """Draws a problem with H = Psi = I and a random beta*."""
    d = config.descent_dim
    mean = np.random.default_rng([config.seed, d]).normal(size=d)
    return LinearPopulation(np.eye(d), mean, np.eye(d), config.noise_var)


def largest_step(problem: LinearPopulation, M: int, start: reg.GDBeta) -> float:
    """Largest stable step: 2 over the largest curvature at start and optimum."""
    best = reg.optimum(reg.GDBeta, problem, M).model

    @jax.jit
    def hessian(model):
        flat, back = jax.flatten_util.ravel_pytree(model)
        return jax.hessian(lambda z: reg.risk(back(z), problem, M))(flat)

    curvatures = [np.linalg.eigvalsh(hessian(model))[-1] for model in (start, best)]
    return float(2 / max(curvatures))


def _settled(excess: np.ndarray) -> tuple[float, float]:
    late = excess[:, -(excess.shape[1] // 4) :].mean(axis=1)
    mean, error = Estimate.of(np.asarray(late))
    return float(mean), float(error)
