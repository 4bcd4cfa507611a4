"""One-layer models of equation (7), one per seed, trained in one program."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from experiments._frame.fields import check_at_least
from icltheory.patterns import (
    PatternTask,
    PatternTransformer,
    Training,
    circulant_tasks,
    train,
)


@dataclasses.dataclass(frozen=True)
class PatternEnsemble:
    """Data, initialisation and training of one-layer models; it decides every result.

    The defaults are those of the figures at beta = 2; what the slides do not state was
    read off them or chosen.

    Attributes:
        num_relevant: Number M1 of relevant patterns.
        num_irrelevant: Number M2 of irrelevant ones.
        scale: Their norm beta.
        num_shifted: Number M1' of out-of-domain patterns.
        shifts: Shifts s of the training tasks (i, i + s); each adds M1 tasks.
        num_neurons: Number m of neurons.
        attention_scale: delta, the start of W_Q, W_K and W_V.
        neuron_scale: xi, the standard deviation of W_O at the start.
        steps: Training steps.
        step_size: eta.
        batch_size: Prompts a step.
        num_examples: Contexts l of a training prompt.
        relevant_fraction: alpha of training.
        record_every: Steps between snapshots.
        seeds: One model for each.
    """

    num_relevant: int = 6
    num_irrelevant: int = 24
    scale: float = 2.0
    num_shifted: int = 3
    shifts: tuple[int, ...] = (1, 2, 3)
    num_neurons: int = 64
    attention_scale: float = 0.2
    neuron_scale: float = 0.02
    steps: int = 320
    step_size: float = 2.0
    batch_size: int = 128
    num_examples: int = 20
    relevant_fraction: float = 0.8
    record_every: int = 20
    seeds: tuple[int, ...] = (0, 1, 2)

    def __post_init__(self):
        counts = ("steps", "batch_size", "num_examples", "record_every")
        check_at_least(self, 1, *counts)
        if self.steps % self.record_every:
            raise ValueError(
                f"record_every: expected a divisor of steps {self.steps}, "
                f"got {self.record_every}"
            )
        if not self.step_size > 0:
            raise ValueError(f"step_size: expected a number > 0, got {self.step_size}")
        if not 0 < self.relevant_fraction <= 1:
            raise ValueError(
                "relevant_fraction: expected a number in (0, 1], "
                f"got {self.relevant_fraction}"
            )
        if not self.seeds:
            raise ValueError("seeds: expected at least one, got none")
        circulant_tasks(self.num_relevant, self.shifts)
        self.model()

    def model(self) -> PatternTransformer:
        """Returns the model."""
        return PatternTransformer(self.num_neurons)

    def task(self, key: Any) -> PatternTask:
        """Returns the pattern task drawn from a key, with its training tasks."""
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
        """Returns one key per seed; purpose 0 is data, 1 initialisation, 2 training.

        Numbers 3 to 9 belong to :mod:`experiments._patterns.scores`, those from 10 on
        to the experiments.
        """
        roots = jax.vmap(jax.random.key)(jnp.asarray(self.seeds, jnp.uint32))
        return jax.vmap(lambda root: jax.random.fold_in(root, purpose))(roots)

    def tasks(self) -> PatternTask:
        """Returns the tasks of all seeds, stacked."""
        return jax.vmap(self.task)(self.keys(0))

    def start(self, tasks: PatternTask) -> dict[str, Any]:
        """Returns the initial parameters of all seeds, stacked."""
        return jax.vmap(self.start_of)(self.keys(1), tasks)

    def start_of(self, key: Any, task: PatternTask) -> dict[str, Any]:
        """Returns the initial parameters of one seed."""
        return self.model().init(
            task,
            key=key,
            attention_scale=self.attention_scale,
            neuron_scale=self.neuron_scale,
        )


@dataclasses.dataclass(frozen=True)
class TrainedEnsemble:
    """Trained one-layer models of several seeds, with their tasks and snapshots.

    Attributes:
        ensemble: How they were made.
        tasks: The tasks of all seeds, stacked.
        path: Parameters along training; leaves begin with (seeds, snapshots).
    """

    ensemble: PatternEnsemble
    tasks: PatternTask
    path: Training

    @property
    def model(self) -> PatternTransformer:
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
        """Returns task and final parameters of one seed, by its index."""
        return jax.tree.map(lambda leaf: leaf[index], (self.tasks, self.params))


def train_ensemble(ensemble: PatternEnsemble) -> TrainedEnsemble:
    """Trains the models of all seeds in one program, in full float32 precision."""
    jax.config.update("jax_default_matmul_precision", "highest")
    return TrainedEnsemble(ensemble, *_trained(ensemble))


@functools.partial(jax.jit, static_argnums=0)
def _trained(ensemble: PatternEnsemble) -> tuple[PatternTask, Training]:
    def one(task, params, key):
        return train(
            ensemble.model(),
            task,
            params,
            ensemble.steps,
            key=key,
            step_size=ensemble.step_size,
            batch_size=ensemble.batch_size,
            num_examples=ensemble.num_examples,
            record_every=ensemble.record_every,
        )

    tasks = ensemble.tasks()
    return tasks, jax.vmap(one)(tasks, ensemble.start(tasks), ensemble.keys(2))
