"""Trains one transformer per pool size and seed in one program."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from experiments._frame.run import Run
from experiments._trained import Fitted, fit
from experiments._trained.fit import mean_metrics
from experiments.task_diversity.config import Config
from experiments.task_diversity.measure import closeness
from experiments.task_diversity.pool import Pool
from icltheory import training
from icltheory.batching import in_turns
from icltheory.training import Curriculum

CLOSENESS = "log10 of distance to dMMSE / distance to ridge"


def train(config: Config, run: Run, scored: dict[int, Callable]) -> Fitted:
    """Trains to the last step, or resumes from the newest checkpoint.

    Runs of one seed share their initial weights, inputs and noise, whatever the pool.
    After 1, 2, 4, ... chunks the record says which predictor each run is closer to.

    Args:
        config: The experiment.
        run: The run's folder.
        scored: What ``measure.compiled_scores`` gives.

    Returns:
        Parameters with a leading axis of runs (``config.runs()``), metrics, timing.
    """
    recipe = config.recipe
    # Products are in full float32, in training and in the evaluation after it.
    jax.config.update("jax_default_matmul_precision", "highest")

    def record(done: int, chunk: training.Chunk) -> dict[str, Any]:
        found = {"step": done, **mean_metrics(chunk.metrics)}
        chunks, rest = divmod(done, recipe.chunk_steps)
        if not rest and chunks.bit_count() == 1:
            found[CLOSENESS] = closeness(config, chunk.state.params, scored)
        return found

    return fit(
        training_step(config),
        initial_state(config),
        run,
        record,
        folder=run.folder / "checkpoints",
        num_steps=recipe.steps,
        chunk_steps=recipe.chunk_steps,
        checkpoint_every=recipe.checkpoint_every,
        config=dataclasses.asdict(config),
        label=f"training {len(config.runs())} transformers",
    )


def initial_state(config: Config) -> training.TrainState:
    """Returns the state at step 0, with an axis of runs."""
    seeds = tuple(seed for _, seed in config.runs())
    return dataclasses.replace(config.recipe, seeds=seeds).start()


def training_step(config: Config) -> training.Step:
    """Returns the training step of all runs."""
    recipe = config.recipe
    module, task, optimizer = recipe.module(), recipe.task(), recipe.transformation()
    sizes = jnp.asarray([size for size, _ in config.runs()], jnp.int32)

    def one(run):
        state, size = run
        step = training.make_step(
            module,
            Pool.of_seed(task, state.seed, size),
            optimizer,
            Curriculum.none(recipe.dim, recipe.num_points),
            batch_size=recipe.batch_size,
            num_points=recipe.num_points,
        )
        return step(state)

    def step(state):
        return in_turns(one, (state, sizes), config.runs_at_once)

    return step
