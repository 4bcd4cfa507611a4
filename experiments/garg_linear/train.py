"""Trains the transformer: metrics, snapshots and checkpoints as it goes."""

import math
from typing import Any

import jax
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


def train(setup: Setup, run: Run, console: Console) -> tuple[Any, list[dict], dict]:
    """Trains to the last step, from the newest checkpoint if there is one.

    Returns:
        The final parameters with a leading axis of seeds, the metrics, the timings.
    """
    config = setup.config
    state = training.init_state(
        setup.model,
        setup.task,
        setup.optimizer,
        config.seeds,
        num_points=config.num_points,
        mesh=setup.mesh,
    )
    store = training.Checkpoints(run.folder / "checkpoints")
    restored = store.restore(state)
    for line in restored.damaged:
        console.print(f"[yellow]warning:[/] {line}; the one before it is used")
    records: list[dict] = []
    if restored.state is not None:
        state, records = restored.state, restored.extra["metrics"]
        console.print(f"resuming at step {int(state.step[0]):,}")
    run.reset_metrics(records)

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
    prompt = evaluation_prompt(setup)
    wanted = {_chunk_end(config, part * config.steps) for part in config.snapshots}
    rate = training.learning_rate(config.optimizer, config.steps)
    seconds = compile_seconds = 0.0
    begun = done = int(state.step[0])
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TextColumn("{task.fields[speed]:.0f} steps/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not run.writes) as progress:
        bar = progress.add_task(
            "training", total=config.steps, completed=done, loss=math.nan, speed=0.0
        )
        chunks = training.run(
            jax.vmap(step), state, config.steps, chunk_steps=config.chunk_steps
        )
        for chunk in chunks:
            done += len(chunk.metrics["loss"])
            state = chunk.state
            seconds += chunk.seconds
            compile_seconds += chunk.compile_seconds
            record = _record(config, rate, done, chunk.metrics)
            if done in wanted:
                errors = model_errors(setup, _local(setup, state.params), prompt)
                record["errors"] = errors.mean(axis=1).tolist()
            records.append(record)
            run.log(record)
            if (
                done == config.steps
                or done % config.checkpoint_every < config.chunk_steps
            ):
                store.save(done, state, {"metrics": records})
            progress.update(
                bar,
                completed=done,
                loss=float(np.mean(record["loss"])),
                speed=(done - begun) / seconds,
            )
    timing = {
        "steps": done - begun,
        "train_seconds": seconds,
        "compile_seconds": compile_seconds,
        "steps_per_second": (done - begun) / seconds if seconds else None,
        "model_steps_per_second": (done - begun) * len(config.seeds) / seconds
        if seconds
        else None,
    }
    return _local(setup, state.params), records, timing


def _local(setup: Setup, params: Any) -> Any:
    """Parameters that this process can use alone, wherever they were trained."""
    return params if setup.mesh is None else jax.device_get(params)


def _chunk_end(config: Config, step: float) -> int:
    """First end of a chunk at or after ``step``."""
    return min(math.ceil(step / config.chunk_steps) * config.chunk_steps, config.steps)


def _record(config: Config, rate, done: int, metrics) -> dict:
    """One line of metrics: means over the chunk, a value a seed."""
    last = done - 1
    dims, points = (
        int(config.curriculum.dims(last)),
        int(config.curriculum.points(last)),
    )
    means = {
        name: np.asarray(value, dtype=np.float64).mean(axis=0).tolist()
        for name, value in metrics.items()
    }
    bayes = sum(max(dims - k, 0) for k in range(points)) / points
    return {
        "step": done,
        **means,
        "least_squares_loss": bayes,
        "learning_rate": float(rate(last)),
        "active_dims": dims,
        "active_points": points,
    }
