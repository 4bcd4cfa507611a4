"""Exact risks, bounds and the Bayes risk of every setting."""

import dataclasses
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.ltb_gap.config import Config
from experiments.ltb_gap.settings import PopulationSetting, axes, problem
from icltheory import regression as reg
from icltheory.regression import Bayes, LinearPopulation, estimate_risk


class Risks(NamedTuple):
    """Exact risks and bounds of one setting.

    Attributes:
        lsa: Risk of the best LSA.
        ltb: Risk of the best LTB, and of the best GD-beta.
        lower: The LTB's risk and the lower bound on the gap, 1 / (M + 1).
        lower_instance: The same with the spectrum.
        upper: The LTB's risk and the least upper bound on the gap.
        bayes: Bayes risk.
        bayes_error: Its standard error.
    """

    lsa: float
    ltb: float
    lower: float
    lower_instance: float
    upper: float
    bayes: float
    bayes_error: float


def theory(config: Config) -> dict[PopulationSetting, Risks]:
    """Computes the theory of every setting; each calculator compiles once."""
    settings = list(
        dict.fromkeys(s for axis in axes(config) for s in axis.line + axis.dots)
    )
    width = max(s.dim for s in settings)
    columns = [jnp.asarray(column) for column in zip(*settings, strict=True)]
    exact = np.stack([np.asarray(x) for x in _exact(*columns, width)], axis=1)
    average = _bayes(config, settings, width)
    return {
        setting: Risks._make([*row.tolist(), *average[setting]])
        for setting, row in zip(settings, exact, strict=True)
    }


@partial(jax.jit, static_argnums=4)
def _exact(dim, M, norm, noise, width):
    def one(dim, M, norm, noise):
        task = problem(dim, norm, noise, width)
        best = reg.optimum(reg.LTB, task, M).risk
        gap = reg.gap(task, M)
        lsa = reg.optimum(reg.LSA, task, M, key=jax.random.key(0)).risk
        bounds = (gap.lower, gap.lower_instance, gap.upper)
        return lsa, best, *(best + bound for bound in bounds)

    return jax.vmap(one)(dim, M, norm, noise)


def _bayes(
    config: Config, settings: list[PopulationSetting], width: int
) -> dict[PopulationSetting, tuple[float, float]]:
    """Estimates Bayes risks and their standard errors.

    Either M is that of the config, or all but M is: the first are one vmapped estimate,
    the second one pass over all prefixes.
    """
    usual = [s for s in settings if s.num_examples == config.num_examples]
    columns = zip(*usual, strict=True)
    dim, _, norm, noise = (jnp.asarray(column, float) for column in columns)

    def averaged(task, lengths, seed):
        drawn = {"key": jax.random.key(seed), "num_prompts": config.bayes_samples}
        return tuple(estimate_risk(Bayes(task), task, lengths, **drawn))

    @jax.jit
    @jax.vmap
    def at_usual(dim, norm, noise):
        return averaged(problem(dim, norm, noise, width), config.num_examples, 1)

    mean, error = (np.asarray(x) for x in at_usual(dim, norm, noise))
    found = {s: (float(mean[i]), float(error[i])) for i, s in enumerate(usual)}
    others = [s for s in settings if s not in found]
    if others:
        longest = max(s.num_examples for s in others)

        @jax.jit
        def curve(noise):
            task = LinearPopulation.isotropic(config.dim, noise)
            return averaged(task, range(longest + 1), 2)

        mean, error = curve(jnp.asarray(config.noise_var, float))
        for s in others:
            found[s] = float(mean[s.num_examples]), float(error[s.num_examples])
    return found


@dataclasses.dataclass(frozen=True)
class Phases:
    """Risks of the best LSA and LTB over ||beta*|| and M.

    Attributes:
        mean_norms: Columns.
        examples: Rows.
        lsa: Risk of the best LSA.
        ltb: Risk of the best LTB.
        closest: Which of the four constructions bounds the gap best.
        seconds: Wall time, compilation included.
    """

    mean_norms: np.ndarray
    examples: np.ndarray
    lsa: np.ndarray
    ltb: np.ndarray
    closest: np.ndarray
    seconds: float


CONSTRUCTIONS = ("labels", "values", "rank_one", "zero_start")


def phases(config: Config) -> Phases:
    """Computes the risks over ||beta*|| and M in one vmapped program."""
    start = time.perf_counter()
    side = config.phase_points
    norms = np.geomspace(0.03, 100, side)
    examples = _spread(1, 300, side)

    def one(norm, M):
        task = problem(config.dim, norm, config.noise_var, config.dim)
        bounds = reg.gap(task, M)
        values = jnp.stack([getattr(bounds, name) for name in CONSTRUCTIONS])
        lsa = reg.optimum(reg.LSA, task, M, key=jax.random.key(0)).risk
        return lsa, reg.optimum(reg.LTB, task, M).risk, jnp.argmin(values)

    grid = np.meshgrid(norms, examples)
    found = jax.jit(jax.vmap(one))(*(jnp.asarray(g.ravel()) for g in grid))
    lsa, best, closest = (np.asarray(x).reshape(grid[0].shape) for x in found)
    seconds = time.perf_counter() - start
    return Phases(norms, examples, lsa, best, closest, seconds)


def _spread(low: int, high: int, count: int) -> np.ndarray:
    """Returns distinct integers that are roughly evenly spaced on a log scale."""
    points = count
    while True:
        found = np.unique(np.round(np.geomspace(low, high, points)).astype(int))
        if len(found) >= min(count, high - low + 1):
            return found
        points += 1


def hills(config: Config, ratios: tuple[float, ...]) -> dict[float, np.ndarray]:
    """Excess risk along the arc from the spurious minimum, relative to its start.

    Args:
        config: Its noise and M = 2, as few examples make the minimum a strict one.
        ratios: phi_2 / phi_1 of a problem with d = 2.

    Returns:
        For each ratio, the excess at evenly spaced angles from 0 to pi / 2.
    """
    angles = jnp.linspace(0, jnp.pi / 2, 181)
    found = {}
    for ratio in ratios:
        cov = jnp.diag(jnp.asarray([1.0, ratio]))
        task = problem(2, 0.0, config.noise_var, 2)
        task = type(task)(task.input_cov, task.task_mean, cov, task.noise_var)
        profile = reg.landscape.excess_profile(task, 2, angles)
        found[ratio] = np.asarray(profile / profile[0])
    return found
