"""Trains the transformer: metrics, snapshots and checkpoints as it goes."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from experiments._run import Run
from experiments.garg_linear.config import Config, Setup
from experiments.garg_linear.evaluate import evaluation_prompt, model_errors
from icltheory import training

_COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TextColumn("loss {task.fields[loss]:.3f}"),
    TextColumn("{task.fields[speed]:.0f} steps/s"),
    TimeRemainingColumn(),
)


@dataclasses.dataclass
class Timing:
    """Wall time of a run, over all its resumes."""

    steps: int = 0
    train_seconds: float = 0.0
    compile_seconds: float = 0.0

    @property
    def steps_per_second(self) -> float:
        """Speed of the loop without compilation; 0 before the first step."""
        return self.steps / self.train_seconds if self.train_seconds else 0.0

    def add(self, chunk: training.Chunk) -> None:
        """Counts a chunk."""
        self.steps += len(chunk.metrics["loss"])
        self.train_seconds += chunk.seconds
        self.compile_seconds += chunk.compile_seconds


def train(
    setup: Setup, run: Run, console: Console
) -> tuple[Any, list[dict[str, Any]], Timing]:
    """Trains to the last step, from the newest checkpoint if there is one.

    Returns:
        The final parameters with a leading axis of seeds, the metrics, the timing.
    """
    config = setup.config
    store = training.Checkpoints(run.folder / "checkpoints")
    state, records, timing = _begin(setup, store, console)
    run.reset_metrics(records)
    prompt = evaluation_prompt(setup)
    wanted = {_chunk_end(config, part * config.steps) for part in config.snapshots}
    done = int(np.max(state.step))
    with Progress(*_COLUMNS, console=console, disable=not run.writes) as progress:
        bar = progress.add_task(
            "training", total=config.steps, completed=done, loss=math.nan, speed=0.0
        )
        chunks = training.run(
            training_step(setup), state, config.steps, chunk_steps=config.chunk_steps
        )
        for chunk in chunks:
            state = chunk.state
            done += len(chunk.metrics["loss"])
            timing.add(chunk)
            record = _record(config, done, chunk.metrics)
            if done in wanted:
                errors = model_errors(setup, _stacked(setup, state.params), prompt)
                record["errors"] = errors.mean(axis=1).tolist()
            records.append(record)
            run.log(record)
            past = done % config.checkpoint_every
            if done == config.steps or past < config.chunk_steps:
                extra = {
                    "config": dataclasses.asdict(config),
                    "metrics": records,
                    "timing": dataclasses.asdict(timing),
                }
                store.save(done, state, extra)
            progress.update(
                bar,
                completed=done,
                loss=float(np.mean(record["loss"])),
                speed=timing.steps_per_second,
            )
    return _stacked(setup, state.params), records, timing


def initial_state(setup: Setup) -> training.TrainState:
    """State at step 0, with an axis of seeds if there are several."""
    config = setup.config
    return training.init_state(
        setup.model,
        setup.task,
        setup.optimizer,
        config.seeds if len(config.seeds) > 1 else config.seeds[0],
        num_points=config.num_points,
        mesh=setup.mesh,
    )


def _begin(setup: Setup, store: training.Checkpoints, console: Console):
    """State, metrics and timing to go on from: a checkpoint's or those of step 0."""
    state = initial_state(setup)
    restored = store.restore(state)
    for line in restored.damaged:
        console.print(f"[yellow]warning:[/] {line}; the one before it is used")
    if restored.state is None:
        return state, [], Timing()
    console.print(f"resuming at step {int(np.max(restored.state.step)):,}")
    extra = restored.extra
    return restored.state, extra["metrics"], Timing(**extra["timing"])


def training_step(setup: Setup) -> training.Step:
    """One step of all seeds."""
    config = setup.config
    step = training.make_step(
        setup.model,
        setup.task,
        setup.optimizer,
        config.curriculum,
        batch_size=config.batch_size,
        num_points=config.num_points,
        accumulation=config.accumulation,
        mesh=setup.mesh,
    )
    return jax.vmap(step) if len(config.seeds) > 1 else step


def _stacked(setup: Setup, params: Any) -> Any:
    """Parameters with an axis of seeds that this process can use alone."""
    params = params if setup.mesh is None else jax.device_get(params)
    if len(setup.config.seeds) > 1:
        return params
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], params)


def _chunk_end(config: Config, step: float) -> int:
    """First end of a chunk at or after ``step``."""
    return min(math.ceil(step / config.chunk_steps) * config.chunk_steps, config.steps)


def _record(config: Config, done: int, metrics: dict[str, Any]) -> dict[str, Any]:
    """One line of metrics: means over the chunk, a list over the seeds."""
    last = done - 1
    dims, points = config.curriculum.dims(last), config.curriculum.points(last)
    dims, points = int(dims), int(points)
    rate = training.learning_rate(config.optimizer, config.steps)
    means = {
        name: np.atleast_1d(np.asarray(value, np.float64).mean(axis=0)).tolist()
        for name, value in metrics.items()
    }
    return {
        "step": done,
        **means,
        "least_squares_loss": sum(max(dims - k, 0) for k in range(points)) / points,
        "learning_rate": float(jnp.asarray(rate(last))),
        "active_dims": dims,
        "active_points": points,
    }
