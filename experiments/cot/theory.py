"""Theory to compare measured errors with: limits, exact votes and bounds."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.cot.settings import ReasoningSetting
from icltheory import chain_of_thought as cot


class TheoryLines(NamedTuple):
    """Limits, exact errors and bounds of one setting; arrays over prompt lengths.

    Attributes:
        icl_limit: Limit of the error of plain in-context learning.
        cot_bound: Bound on the probability of any wrong step.
        icl_bound: Bound on the error of plain in-context learning.
        first_votes: Exact error of the first step, ends of the interval that ties
            leave open; ``None`` for more than two states.
        direct_votes: The same for plain in-context learning.
    """

    icl_limit: float
    cot_bound: np.ndarray
    icl_bound: np.ndarray
    first_votes: np.ndarray | None
    direct_votes: np.ndarray | None


def lines(setting: ReasoningSetting, lengths: Sequence[int]) -> TheoryLines:
    """Computes the theory of a setting in double precision."""
    with jax.enable_x64(True):
        steps = jnp.asarray(setting.steps, jnp.float64)
        found = _lines(steps, tuple(lengths), setting.fraction)
        limit, *arrays = jax.device_get(found)
        return TheoryLines(float(limit), *arrays)


@partial(jax.jit, static_argnames="lengths")
def _lines(steps, lengths, alpha):
    l = jnp.array(lengths, float)
    task = cot.ReasoningTask(steps, alpha)
    bounds = (
        jax.vmap(lambda n, bound=bound: bound(task, n))(l)
        for bound in (cot.cot_error_bound, cot.icl_error_bound)
    )
    return task.icl_error_limit, *bounds, *_votes(task, lengths, alpha)


def _votes(task, lengths, alpha):
    """Exact vote errors of two-state tasks, averaged over uniform inputs."""
    if task.num_states != 2:
        return None, None
    correct = task.stepwise_paths
    first = task.steps[0][jnp.arange(2), correct[:, 1]]
    direct = task.composed_transition[jnp.arange(2), correct[:, -1]]
    return tuple(
        jnp.array([_two_states(probabilities, l, alpha) for l in lengths])
        for probabilities in (first, direct)
    )


def _two_states(probabilities, length, alpha):
    found = jax.vmap(lambda p: cot.vote_error(p, length, alpha))(probabilities)
    wrong = jnp.mean(found.wrong)
    return wrong, wrong + jnp.mean(found.tied)
