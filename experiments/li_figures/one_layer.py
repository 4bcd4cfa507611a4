"""Searches training settings and stopping times of one layer for Figures 8 to 15."""

import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments._frame.fields import check_at_least
from experiments._patterns import PatternEnsemble, shifted_prompts
from icltheory.patterns import (
    neuron_parts,
    projections,
    prune_neurons,
    scores,
    train,
)

_DATA, _START, _PROMPTS, _SHIFTED, _ORDERS, _TRAINING = range(6)


@dataclasses.dataclass(frozen=True)
class OneLayerGrid:
    """Grid of trainings of one layer, evaluated at every snapshot.

    Attributes:
        ensemble: Data, start and training; its first seed is trained, at the step sizes
            and numbers of tasks below.
        gains: Sizes m |a_i| of the second layer, 1 as in our other experiments and
            sqrt(m) as in the authors' algorithm.
        rates: Products of step size and gain.
        task_counts: Numbers of training tasks; n tasks are the shifts 1 to n.
        coefficient_sum: S_1 of the prompts out of domain.
        pruned: Share R of the neurons that is pruned, as at the end of Figure 14.
        orders: Random orders of pruning, averaged.
        prompts: Prompts in domain and out of domain.
    """

    ensemble: PatternEnsemble = PatternEnsemble(
        steps=480, record_every=20, batch_size=32, seeds=(0,)
    )
    gains: tuple[float, ...] = (1.0, 1.5, 2.0, 8.0)
    rates: tuple[float, ...] = (1.0, 2.0)
    task_counts: tuple[int, ...] = (3, 1)
    coefficient_sum: float = 1.1
    pruned: float = 0.4
    orders: int = 2
    prompts: int = 512

    def __post_init__(self):
        check_at_least(self, 1, "orders", "prompts")
        for name in ("gains", "rates"):
            values = getattr(self, name)
            if not values or not all(value > 0 for value in values):
                raise ValueError(
                    f"{name}: expected at least one value, each above 0, got {values}"
                )
        if not self.task_counts or min(self.task_counts) < 1:
            raise ValueError(
                f"task_counts: expected at least one value, each at least 1, got "
                f"{self.task_counts}"
            )
        if not 0 < self.pruned < 1:
            raise ValueError(
                f"pruned: expected a number in (0, 1), got {self.pruned:g}"
            )

    @property
    def task_sets(self) -> list[tuple[int, ...]]:
        """Sets of training tasks, as shifts, for every number of tasks."""
        return [tuple(range(1, count + 1)) for count in self.task_counts]

    @property
    def settings(self) -> list[tuple[float, float]]:
        """Gain and step size of every training on one set of tasks."""
        pairs = itertools.product(self.gains, self.rates)
        return [(gain, rate / gain) for gain, rate in pairs]


class Probes(NamedTuple):
    """Measured quantities of one model; leaves have axes (settings, snapshots).

    Attributes:
        query: Mean norm of W_Q p (Figure 8).
        component: The part of it along the pattern.
        attention: Mass on contexts of the query's pattern (Figure 9).
        feature: Mean norm of the feature parts of the large neurons (Figure 10).
        feature_turn: Their mean angle to the mean pattern over pi.
        label: Mean norm of the label parts (Figure 11).
        label_turn: Their mean angle to q or -q over pi.
        size: Mean norm of the large rows of W_O (Figure 14).
        large: Number of large neurons.
        angle_ratio: Largest b sin(angle) / (delta |w|) over all neurons.
        drift: Change of W_V W_V' - W_O' W_O since the start, over the norm of W_O' W_O.
        hinge: Hinge error in domain.
        error: 0-1 error out of domain, not pruned.
        small_first: The same without the smallest neurons.
        random: The same without random ones.
    """

    query: Any
    component: Any
    attention: Any
    feature: Any
    feature_turn: Any
    label: Any
    label_turn: Any
    size: Any
    large: Any
    angle_ratio: Any
    drift: Any
    hinge: Any
    error: Any
    small_first: Any
    random: Any


class Trained(NamedTuple):
    """All trainings on one set of tasks.

    Attributes:
        shifts: The set of tasks.
        settings: Gain and step size of each.
        steps: Steps of the snapshots.
        probes: Arrays ``(settings, snapshots)``.
    """

    shifts: tuple[int, ...]
    settings: list[tuple[float, float]]
    steps: list[int]
    probes: Probes


def search(grid: OneLayerGrid, shifts: tuple[int, ...]) -> Trained:
    """Trains at every setting and measures every snapshot in one program."""
    ensemble = dataclasses.replace(grid.ensemble, shifts=shifts)
    probes = jax.jit(lambda pairs: jax.lax.map(_one(grid, ensemble), pairs))(
        jnp.asarray(grid.settings, jnp.float32)
    )
    steps = range(0, ensemble.steps + 1, ensemble.record_every)
    return Trained(shifts, grid.settings, list(steps), Probes(*map(np.asarray, probes)))


def _one(grid: OneLayerGrid, ensemble: PatternEnsemble):
    """Returns a function from gain and step size to the probes of all snapshots."""
    model = ensemble.model()
    keys = [ensemble.keys(purpose)[0] for purpose in range(6)]
    task = ensemble.task(keys[_DATA])
    start = ensemble.start_of(keys[_START], task)
    size = grid.prompts, ensemble.num_examples, ensemble.relevant_fraction
    inside = task.sample(keys[_PROMPTS], ensemble.num_examples, grid.prompts)
    outside = shifted_prompts(task, keys[_SHIFTED], grid.coefficient_sum, *size)
    orders = jax.random.split(keys[_ORDERS], grid.orders)

    def difference(params):
        W_V, W_O = params["W_V"], params["W_O"]
        return W_V @ W_V.T - W_O.T @ W_O

    def look(params):
        parts, seen = neuron_parts(params, task), scores(model, params, inside)
        turn = jnp.where(parts.positive, parts.label_angle, jnp.pi - parts.label_angle)
        tokens = projections(params, task, inside)
        limit = ensemble.attention_scale * parts.size
        change = difference(params) - difference(start)
        product = params["W_O"].T @ params["W_O"]

        def error(cut):
            return scores(model, cut, outside).error

        def error_at_random(key):
            return error(prune_neurons(params, grid.pruned, order="random", key=key))

        def mean(values):
            return parts.mean(values, parts.large)

        return Probes(
            tokens.query,
            tokens.query_component,
            seen.attention_mass[0],
            mean(parts.feature_norm),
            mean(parts.feature_angle) / jnp.pi,
            mean(parts.label_norm),
            mean(turn) / jnp.pi,
            mean(parts.size),
            jnp.sum(parts.large),
            jnp.max(parts.label_norm * jnp.sin(turn) / limit),
            jnp.linalg.norm(change) / jnp.linalg.norm(product),
            seen.hinge,
            error(params),
            error(prune_neurons(params, grid.pruned)),
            jnp.mean(jax.lax.map(error_at_random, orders)),
        )

    def run(pair):
        gain, step_size = pair
        path = train(
            model,
            task,
            start | {"a": gain * start["a"]},
            ensemble.steps,
            key=keys[_TRAINING],
            step_size=step_size,
            batch_size=ensemble.batch_size,
            num_examples=ensemble.num_examples,
            record_every=ensemble.record_every,
        )
        return jax.lax.map(look, path.params)

    return run
