"""Gradient flow of all weights from random starts: how many reach the optimum."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.gradient_flow.config import Config
from icltheory import regression as reg
from icltheory.regression import LinearPopulation, Trajectory, flow

MODELS = ("LTB", "LSA, beta* = 0")
FATES = (
    "least risk",
    "spurious minimum",
    "another stationary point known",
    "at rest elsewhere",
    "still moving",
)
ARRIVED = 1e-6  # relative to the least risk
AT = 1e-3  # relative to the excess of a stationary point
MOVING = 1e-3  # relative fall of the excess between the last two records


class Starts(NamedTuple):
    """The flows from the random starts of one setting.

    Attributes:
        times: Times of the record.
        excess: Excess risks, (starts, times); NaN where the solver gave up before.
        levels: Excess of the stationary points that keep direction i alone.
        margin: Of the sufficient condition for the first of them to be a minimum.
        counts: Starts by fate.
        rest: Where most of those stand that are at rest at no level: excess, count.
        unfinished: How many of all ended before the end time.
    """

    times: np.ndarray
    excess: np.ndarray
    levels: np.ndarray
    margin: float
    counts: dict[str, int]
    rest: tuple[float | None, int]
    unfinished: int


def measure_starts(config: Config, name: str, dim: int, M: int) -> Starts:
    """Computes the flow from every random start of a setting at once."""
    problem = problem_of(config, name, dim)
    times = np.append(0, np.geomspace(0.1, config.end_time, 40))
    found = _flow(
        problem,
        jnp.asarray(M),
        draw_weights(config, name, dim),
        jnp.asarray(times),
        config.max_steps,
    )
    excess = np.asarray(found.excess)
    excess = np.where(np.isfinite(excess), excess, np.nan)
    spurious = reg.landscape.spurious_minimum(problem, M)
    levels = stationary_levels(problem, M)
    last, moving = last_finite(excess)
    fate = fates(last, moving, levels, float(reg.optimum(reg.LTB, problem, M).risk))
    return Starts(
        times=times,
        excess=excess,
        levels=levels,
        margin=float(spurious.margin),
        counts={name: int(part.sum()) for name, part in fate.items()},
        rest=commonest(last[fate[FATES[3]]]),
        unfinished=int(np.sum(~np.asarray(found.succeeded))),
    )


def problem_of(config: Config, name: str, dim: int) -> LinearPopulation:
    """Problem with H = I, prior variances from 1 to 0.3, and beta* of ones or zero."""
    mean = np.zeros(dim) if name == MODELS[1] else np.ones(dim)
    prior = np.diag(np.linspace(1, 0.3, dim))
    return LinearPopulation(np.eye(dim), mean, prior, config.noise_var)


def draw_weights(config: Config, name: str, dim: int) -> Any:
    """Draws stacked weights with normal entries: d_k = d, d_v = 1 and d_f = 1."""
    rng = np.random.default_rng([config.seed, dim, MODELS.index(name)])
    rows = (dim, dim, 1, 1) if name == MODELS[1] else (dim, dim, 1, 1, 1, 1)
    kind = reg.LSA if name == MODELS[1] else reg.LTB

    def draw():
        return [
            jnp.asarray(config.start_scale * rng.normal(size=(r, dim + 1)))
            for r in rows
        ]

    models = [kind(*draw()) for _ in range(config.num_starts)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)


def _flow(problem, M, models, times, max_steps: int) -> Trajectory:
    @jax.jit
    def run(problem, M, models):
        return jax.vmap(
            lambda model: flow(
                model,
                problem,
                M,
                times,
                solver="explicit",
                rtol=1e-6,
                atol=1e-9,
                max_steps=max_steps,
            )
        )(models)

    return run(problem, M, models)


def stationary_levels(problem: LinearPopulation, M: int) -> np.ndarray:
    """Excess sum_{j != i} phi_j^2 / omega_j of each stationary point, for H = I."""
    phi = np.sort(np.linalg.eigvalsh(problem.task_cov))[::-1]
    omega = ((M + 1) * phi + phi.sum() + np.asarray(problem.noise_var)) / M
    lost = phi**2 / omega
    return lost.sum() - lost


def last_finite(excess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the last finite excess of each row, and whether it still decreases."""
    index = np.isfinite(excess).sum(axis=1) - 1
    rows = np.arange(len(excess))
    last, before = excess[rows, index], excess[rows, np.maximum(index - 1, 0)]
    return last, last < before * (1 - MOVING)


def fates(
    last: np.ndarray, moving: np.ndarray, levels: np.ndarray, least: float
) -> dict[str, np.ndarray]:
    """Classifies starts: optimum, a stationary level, elsewhere, or still moving."""
    near = np.abs(last[:, None] / levels[None] - 1) < AT
    conditions = [last < ARRIVED * least, moving, near[:, 0], near.any(axis=1)]
    chosen = np.select(conditions, [0, 4, 1, 2], 3)
    return {name: chosen == i for i, name in enumerate(FATES)}


def commonest(values: np.ndarray) -> tuple[float | None, int]:
    """Returns the most frequent value to three digits, and its count."""
    if not len(values):
        return None, 0
    rounded = np.array([float(f"{value:.3g}") for value in values])
    found, counts = np.unique(rounded, return_counts=True)
    return float(found[counts.argmax()]), int(counts.max())
