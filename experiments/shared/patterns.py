"""One-layer models trained on patterns, and their tests in domain and out of domain.

``train_ensemble`` trains the models of equation (7), a seed each, in one program, and
``over_seeds`` maps a function over them; ``scores_on`` and ``scores_at_sums`` test them
on unseen tasks and on shifted patterns.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from experiments.frame import check_at_least, check_each, expect
from icltheory.patterns import (
    PatternPrompt,
    PatternTask,
    PatternTransformer,
    Scores,
    Training,
    all_tasks,
    circulant_tasks,
    scores,
    train,
)

# Purposes of keys (see ``PatternEnsemble.keys``).
IN_DOMAIN, SHIFTED = 3, 4


@dataclasses.dataclass(frozen=True)
class PatternEnsemble:
    """Data, initialisation and training of one-layer models, by default at beta = 2."""

    num_relevant: int = 6  # number M1 of relevant patterns
    num_irrelevant: int = 24  # number M2 of irrelevant ones
    scale: float = 2.0  # their norm beta
    num_shifted: int = 3  # number M1' of out-of-domain patterns
    shifts: tuple[int, ...] = (1, 2, 3)  # s of the training tasks (i, i + s), M1 each
    num_neurons: int = 64  # number m of neurons
    attention_scale: float = 0.2  # delta, the start of W_Q, W_K and W_V
    neuron_scale: float = 0.02  # xi, the standard deviation of W_O at the start
    steps: int = 320  # training steps
    step_size: float = 2.0  # eta
    batch_size: int = 128  # prompts per step
    num_examples: int = 20  # contexts l of a training prompt
    relevant_fraction: float = 0.8  # alpha of training
    record_every: int = 20  # steps between snapshots
    seeds: tuple[int, ...] = (0, 1, 2)  # one model for each

    def __post_init__(self):
        counts = ("steps", "batch_size", "num_examples", "record_every")
        check_at_least(self, 1, *counts)
        check_each(self, "above 0", "step_size")
        check_each(self, "in (0, 1]", "relevant_fraction")
        steps, every = self.steps, self.record_every
        expect(not steps % every, "record_every", f"a divisor of steps {steps}", every)
        expect(len(self.seeds) > 0, "seeds", "at least one", "none")
        circulant_tasks(self.num_relevant, self.shifts)
        self.model()

    def model(self) -> Any:
        """The model."""
        return PatternTransformer(self.num_neurons)

    def task(self, key: Any) -> PatternTask:
        """The pattern task drawn from a key, with its training tasks."""
        return PatternTask(
            self.num_relevant,
            self.num_irrelevant,
            self.scale,
            tasks=circulant_tasks(self.num_relevant, self.shifts),
            relevant_fraction=self.relevant_fraction,
            num_shifted=self.num_shifted,
            dtype=jnp.float32,
            key=key,
        )

    def keys(self, purpose: int) -> jax.Array:
        """One key per seed; purpose 0 is data, 1 initialisation, 2 training.

        Numbers 3 to 5 belong to this module, those from 6 on to the experiments.
        """
        roots = jax.vmap(jax.random.key)(jnp.asarray(self.seeds, jnp.uint32))
        return jax.vmap(lambda root: jax.random.fold_in(root, purpose))(roots)

    def tasks(self) -> PatternTask:
        """The tasks of all seeds, stacked."""
        return jax.vmap(self.task)(self.keys(0))

    def start(self, tasks: PatternTask) -> dict[str, Any]:
        """Initial parameters of all seeds, stacked."""
        return jax.vmap(self.start_of)(self.keys(1), tasks)

    def start_of(self, key: Any, task: PatternTask) -> dict[str, Any]:
        """Initial parameters of one seed."""
        scales = {x: getattr(self, x) for x in ("attention_scale", "neuron_scale")}
        return self.model().init(task, key=key, **scales)

    def train(self, task: PatternTask, start: Any, key: Any, **rule: Any) -> Training:
        """Training of one seed, by descent unless another ``rule`` is given."""
        names = ("batch_size", "num_examples", "record_every")
        options = {name: getattr(self, name) for name in names}
        options |= rule or {"step_size": self.step_size}
        return train(self.model(), task, start, self.steps, key=key, **options)


@dataclasses.dataclass(frozen=True)
class TrainedEnsemble:
    """Trained one-layer models of several seeds, with their tasks and snapshots."""

    ensemble: PatternEnsemble
    tasks: PatternTask  # those of all seeds, stacked
    path: Training  # parameters along training; leaves begin with (seeds, snapshots)

    @property
    def model(self) -> Any:
        """The model."""
        return self.ensemble.model()

    @property
    def params(self) -> dict[str, Any]:
        """Final parameters, stacked over the seeds."""
        return self.path.last

    @property
    def steps(self) -> list[int]:
        """Training steps of the snapshots."""
        return self.path.steps[0].tolist()

    def of_seed(self, index: int) -> tuple[PatternTask, dict[str, Any]]:
        """Task and final parameters of one seed, by its index."""
        return jax.tree.map(lambda leaf: leaf[index], (self.tasks, self.params))

    def with_all_tasks(self) -> PatternTask:
        """The tasks with all pairs of patterns in place of the training tasks."""
        return self.tasks.with_(tasks=all_tasks(self.ensemble.num_relevant))


def train_ensemble(ensemble: PatternEnsemble) -> TrainedEnsemble:
    """Trains the models of all seeds in one program, in full float32 precision."""
    jax.config.update("jax_default_matmul_precision", "highest")
    return TrainedEnsemble(ensemble, *_trained(ensemble))


@functools.partial(jax.jit, static_argnums=0)
def _trained(ensemble: PatternEnsemble) -> tuple[PatternTask, Training]:
    tasks = ensemble.tasks()
    given = tasks, ensemble.start(tasks), ensemble.keys(2)
    return tasks, jax.vmap(ensemble.train)(*given)


def over_seeds(
    function: Callable[..., Any], trained: TrainedEnsemble, *args: Any
) -> Any:
    """Applies ``function(task, params, *arg)`` to every seed in one program."""
    return jax.jit(jax.vmap(function))(trained.tasks, trained.params, *args)


def means_of(found: Scores) -> dict[str, Any]:
    """Means of scores over prompts; attention is that of the first layer."""
    return {
        "hinge": found.hinge,
        "error": found.error,
        "margin": found.margin,
        "attention": found.attention_mass[..., 0],  # on contexts of the query's pattern
        "missed": found.miss_rate,  # share of prompts without such a context
    }


def scores_on(
    trained: TrainedEnsemble,
    num_prompts: int,
    *,
    num_examples: int = 20,
    relevant_fraction: float = 0.8,
) -> Scores:
    """Scores on the tasks that training left out, (seeds, prompts)."""

    def one(task, params, key):
        asked = task.held_out().with_(relevant_fraction=relevant_fraction)
        prompt = asked.sample(key, num_examples, num_prompts)
        return scores(trained.model, params, prompt)

    return over_seeds(one, trained, trained.ensemble.keys(IN_DOMAIN))


def shifted_prompts(
    task: Any,
    key: Any,
    coefficient_sum: Any,
    num_prompts: int,
    num_examples: int,
    relevant_fraction: Any,
) -> PatternPrompt:
    """Draws out-of-domain prompts with a freshly drawn shift."""
    first, second = jax.random.split(key)
    shifted = task.out_of_domain(coefficient_sum, key=first)
    shifted = shifted.with_(relevant_fraction=relevant_fraction)
    return shifted.sample(second, num_examples, num_prompts)


def scores_at_sums(
    trained: TrainedEnsemble,
    sums: Sequence[float],
    num_draws: int,
    num_prompts: int,
    *,
    num_examples: int = 20,
    relevant_fraction: float = 0.8,
) -> dict[str, Any]:
    """Out-of-domain means, (seeds, sums, draws), with one set of draws for all sums."""
    check_sums(trained.ensemble, sums)
    keys = trained.ensemble.keys(SHIFTED)
    arrays = jnp.asarray(sums, jnp.float32), relevant_fraction
    sizes = trained.model, num_draws, num_prompts, num_examples
    return _at_sums(*sizes, trained.with_all_tasks(), trained.params, keys, *arrays)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _at_sums(model, num_draws, num_prompts, num_examples, *arrays):
    *stacked, sums, relevant_fraction = arrays

    def one(task, params, key):
        def at(coefficient_sum, draw):
            own = jax.random.fold_in(key, draw)
            sizes = coefficient_sum, num_prompts, num_examples, relevant_fraction
            prompt = shifted_prompts(task, own, *sizes)
            return means_of(scores(model, params, prompt))

        def along(coefficient_sum):
            return jax.lax.map(lambda draw: at(coefficient_sum, draw), draws)

        return jax.lax.map(along, sums)

    draws = jnp.arange(num_draws)
    return jax.vmap(one)(*stacked)


def check_sums(ensemble: Any, sums: Sequence[float]) -> None:
    """Raises unless there is a sum and M1' S_1^2 <= M1 for every sum."""
    expect(len(sums) > 0, "sums", "at least one", "none")
    M, n = ensemble.num_relevant, ensemble.num_shifted
    for S in sums:
        got = f"{n} * {S:g}^2 = {n * S**2:g} > {M}"
        expect(n * S**2 <= M * (1 + 1e-6), "sums", "M1' S_1^2 <= M1", got)
