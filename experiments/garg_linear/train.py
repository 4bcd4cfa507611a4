"""Trains the transformer and stores metrics, snapshots and checkpoints."""

import dataclasses
import math
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from experiments._frame.run import Run
from experiments._frame.stored import read_config
from experiments._trained import Timing, fit
from experiments._trained.fit import mean_metrics
from experiments.garg_linear.config import PRESETS, Config, Setup, set_up
from experiments.garg_linear.evaluate import (
    evaluation_prompt,
    least_squares_loss,
    model_errors,
)
from icltheory import training


def train(setup: Setup, run: Run) -> tuple[Any, list[dict[str, Any]], Timing]:
    """Trains to the last step, starting from the newest checkpoint if there is one.

    Returns:
        The final parameters with a leading axis of seeds, the metrics, the timing.
    """
    config = setup.config
    prompt = evaluation_prompt(setup)
    wanted = {_chunk_end(config, part * config.steps) for part in config.snapshots}

    def record(done: int, chunk: training.Chunk) -> dict[str, Any]:
        line = _record(setup, done, chunk.metrics)
        if done in wanted:
            errors = model_errors(setup, stacked(setup, chunk.state), prompt)
            line["errors"] = errors.mean(axis=1).tolist()
        return line

    fitted = fit(
        training_step(setup),
        initial_state(setup),
        run,
        record,
        folder=run.folder / "checkpoints",
        num_steps=config.steps,
        chunk_steps=config.chunk_steps,
        checkpoint_every=config.checkpoint_every,
        config=dataclasses.asdict(config),
    )
    return stacked(setup, fitted.state), fitted.records, fitted.timing


def load(run: str | os.PathLike) -> tuple[Setup, Any]:
    """Loads the models of a run from its newest checkpoint.

    Args:
        run: The run's folder.

    Returns:
        Model, task and config of the run, and the parameters, which have a leading axis
        of seeds if the config has several.

    Raises:
        ValueError: If it is no folder of a run of this experiment, or has no intact
            checkpoint.
    """
    folder = Path(run)
    setup = set_up(read_config(folder, PRESETS["cpu"]), devices=1)
    store = training.Checkpoints(folder / "checkpoints")
    found = store.restore(initial_state(setup))
    if found.state is None:
        raise ValueError(f"run: expected a run with a checkpoint, got {run}")
    return setup, training.averaged(found.state)


def initial_state(setup: Setup) -> training.TrainState:
    """Returns the state at step 0, with an axis of seeds if there are several."""
    config = setup.config
    return training.init_state(
        setup.model,
        setup.task,
        setup.optimizer,
        config.seeds if len(config.seeds) > 1 else config.seeds[0],
        num_points=config.num_points,
        mesh=setup.mesh,
    )


def training_step(setup: Setup, **options: Any) -> training.Step:
    """Returns the training step of all seeds, with further options of ``make_step``."""
    config = setup.config
    step = training.make_step(
        setup.model,
        setup.task,
        setup.optimizer,
        config.curriculum,
        batch_size=config.batch_size,
        num_points=config.num_points,
        accumulation=config.accumulation,
        targets=training.bayes_targets if config.targets == "posterior" else None,
        mesh=setup.mesh,
        **options,
    )
    return jax.vmap(step) if len(config.seeds) > 1 else step


def stacked(setup: Setup, state: training.TrainState) -> Any:
    """Returns parameters with an axis of seeds, in this process's memory."""
    params = training.averaged(state)
    params = params if setup.mesh is None else jax.device_get(params)
    if len(setup.config.seeds) > 1:
        return params
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], params)


def _chunk_end(config: Config, step: float) -> int:
    """Returns the first end of a chunk at or after ``step``."""
    return min(math.ceil(step / config.chunk_steps) * config.chunk_steps, config.steps)


def _record(setup: Setup, done: int, metrics: dict[str, Any]) -> dict[str, Any]:
    """Returns a record of metrics: means over the chunk, with lists over the seeds."""
    config, last = setup.config, done - 1
    dims, points = config.curriculum.dims(last), config.curriculum.points(last)
    dims, points = int(dims), int(points)
    rate = training.learning_rate(config.optimizer, config.steps)
    exact = least_squares_loss(setup, dims, points)
    return {
        "step": done,
        **mean_metrics(metrics),
        **({} if exact is None else {"least_squares_loss": exact}),
        "learning_rate": float(jnp.asarray(rate(last))),
        "active_dims": dims,
        "active_points": points,
    }
