"""One ensemble of trained one-layer models, shared by all tests that need one.

Six members in one program: three seeds at beta = 2 (step size 2), three at beta = 3
(step size 1). Float32, as in the experiments.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icltheory.patterns import (
    PatternTask,
    PatternTransformer,
    circulant_tasks,
    scores,
    train,
)
from tests.patterns.compiled import sample

MODEL = PatternTransformer(64)
EIGHTEEN = circulant_tasks(6, (1, 2, 3))
BETA = np.repeat([2.0, 3.0], 3)
SEEDS = np.tile(np.arange(3), 2)


class Ensemble(NamedTuple):
    task: Any
    path: Any

    @property
    def params(self):
        return self.path.last

    def at(self, beta):
        """The three members of one beta: their tasks and final parameters."""
        rows = np.flatnonzero(beta == BETA)
        return jax.tree.map(lambda leaf: leaf[rows], (self.task, self.params))


def member(seed, beta, tasks, num_steps, every, alpha=0.8):
    keys = jax.random.split(jax.random.key(seed), 3)
    made = {"tasks": tasks, "num_shifted": 3, "dtype": jnp.float32}
    task = PatternTask(6, 24, beta, relevant_fraction=alpha, key=keys[0], **made)
    start = MODEL.init(task, key=keys[1])
    given = {"key": keys[2], "step_size": 4 - beta, "record_every": every}
    return task, train(MODEL, task, start, num_steps, **given)


SMALL = PatternTransformer(16)


def small_task(key, num_irrelevant, **more):
    """Four relevant patterns of norm 3, and 8 of 12 tasks."""
    more = {"tasks": circulant_tasks(4, [1, 2]), "dtype": jnp.float32} | more
    return PatternTask(4, num_irrelevant, 3.0, key=key, **more)


def small_path(task, keys, batch_size=64):
    """160 steps of 16 neurons."""
    given = {"step_size": 1.0, "num_examples": 12, "record_every": 160}
    start = SMALL.init(task, key=keys[1])
    return train(SMALL, task, start, 160, key=keys[2], batch_size=batch_size, **given)


@functools.cache
def ensemble():
    run = jax.jit(jax.vmap(lambda s, b: member(s, b, EIGHTEEN, 320, 40)))
    return Ensemble(*run(jnp.asarray(SEEDS), jnp.asarray(BETA, jnp.float32)))


@functools.partial(jax.jit, static_argnums=(4, 5))
def evaluate(task, params, key, alpha, size=2048, length=20, coefficient_sum=None):
    """Scores of a stack of members, each on prompts of its own task."""

    def one(task, params):
        prompt = sample(task, key, length, size, alpha, coefficient_sum)
        return scores(MODEL, params, prompt)

    return jax.vmap(one)(task, params)
