"""Runs the training loop with progress, metrics, checkpoints and snapshots."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments._frame import interrupts
from experiments._frame.extend import STEPS
from experiments._frame.run import Run
from icltheory import training


@dataclasses.dataclass
class Timing:
    """Wall time of a training run, summed over its resumes."""

    steps: int = 0
    train_seconds: float = 0.0
    compile_seconds: float = 0.0

    @property
    def steps_per_second(self) -> float:
        """Steps per second without compilation; 0 before the first step."""
        return self.steps / self.train_seconds if self.train_seconds else 0.0

    def add(self, chunk: training.Chunk) -> None:
        """Adds the steps and times of a chunk."""
        self.steps += len(chunk.metrics["loss"])
        self.train_seconds += chunk.seconds
        self.compile_seconds += chunk.compile_seconds


@dataclasses.dataclass(frozen=True)
class Fitted:
    """The result of a training run.

    Attributes:
        state: The last state.
        snapshots: Parameters at the steps asked for, in order.
        records: One record a chunk.
        timing: Wall time.
    """

    state: training.TrainState
    snapshots: dict[int, Any]
    records: list[dict[str, Any]]
    timing: Timing


def fit(
    step: training.Step | Sequence[training.Phase],
    state: Any,
    run: Run,
    record: Callable[[int, training.Chunk], dict[str, Any]],
    *,
    folder: Path,
    num_steps: int,
    chunk_steps: int,
    checkpoint_every: int,
    config: dict[str, Any],
    snapshots: Sequence[int] = (),
    earlier: Sequence[dict[str, Any]] = (),
    label: str = "training",
) -> Fitted:
    """Trains up to the last step, starting from the newest checkpoint if there is one.

    Ctrl-C, or a signal of a scheduler, writes a checkpoint after the current chunk and
    then interrupts.

    Args:
        step: One training step, or phases with a step each.
        state: Where to begin.
        run: Run folder; its ``metrics.jsonl`` gets one record a chunk.
        record: Makes the record of a chunk from the steps taken and the chunk.
        folder: Where the checkpoints are.
        num_steps: Steps in all.
        chunk_steps: Steps a dispatch.
        checkpoint_every: Steps between checkpoints.
        config: Kept beside each checkpoint, and the same in those that are read.
        snapshots: Steps at which parameters are kept: 0, ``num_steps`` or multiples of
            ``chunk_steps``.
        earlier: Records that precede these in ``metrics.jsonl``.
        label: What is shown while it trains.

    Returns:
        The last state, the snapshots, the records and the timing.

    Raises:
        ValueError: if a snapshot falls within a chunk, or the checkpoint is of another
            state or config.
        KeyboardInterrupt: after Ctrl-C.
    """
    check_snapshots(snapshots, num_steps, chunk_steps)
    store = training.Checkpoints(folder)
    kept = {
        str(s): jax.tree.map(jnp.copy, state.params) for s in sorted(set(snapshots))
    }
    restored = store.restore(_saved(state, kept))
    for line in restored.damaged:
        run.warn(f"{line}; the one before it is used")
    records, timing = [], Timing()
    if restored.state is not None:
        _check_config(folder, restored.extra["config"], config, run)
        state, kept = _loaded(restored.state, kept)
        records, timing = restored.extra["metrics"], Timing(**restored.extra["timing"])
        run.console.print(f"resuming at step {int(np.max(state.step)):,}")
    run.extend()
    run.reset_metrics([*earlier, *records])
    done = int(np.max(state.step))
    with (
        run.progress(label, num_steps, done=done, unit="steps") as activity,
        _stopping(run) as interrupt,
    ):
        for chunk in training.run(
            step, state, num_steps, chunk_steps=chunk_steps, on_stage=activity.enter
        ):
            activity.advance(len(chunk.metrics["loss"]))
            activity.enter("evaluating")
            state = chunk.state
            done += len(chunk.metrics["loss"])
            timing.add(chunk)
            if str(done) in kept:
                # The next chunk reuses the memory of this state.
                kept[str(done)] = jax.tree.map(jnp.copy, state.params)
            records.append(record(done, chunk))
            run.log(records[-1])
            due = done == num_steps or done % checkpoint_every < chunk_steps
            if due or interrupt.asked:
                extra = {
                    "config": config,
                    "metrics": records,
                    "timing": dataclasses.asdict(timing),
                }
                store.save(done, _saved(state, kept), extra)
            if interrupt.asked:
                raise KeyboardInterrupt(interrupt.asked)
            loss = float(np.mean(records[-1]["loss"]))
            activity.shown = f"loss {loss:.3f}, {timing.steps_per_second:.0f} steps/s"
    steps = {int(name): params for name, params in kept.items()}
    return Fitted(state, steps, records, timing)


def mean_metrics(metrics: dict[str, Any]) -> dict[str, list[float]]:
    """Returns the means of metrics over a chunk, as lists over the seeds."""
    return {
        name: np.atleast_1d(np.asarray(value, np.float64).mean(axis=0)).tolist()
        for name, value in metrics.items()
    }


def check_snapshots(snapshots: Sequence[int], num_steps: int, chunk_steps: int) -> None:
    """Raises unless every snapshot is at the end of a chunk or at step 0."""
    for s in snapshots:
        if not 0 <= s <= num_steps or (s % chunk_steps and s != num_steps):
            raise ValueError(
                f"snapshots: expected multiples of chunk_steps {chunk_steps} up to "
                f"{num_steps}, got {s}"
            )


def _stopping(run: Run) -> contextlib.AbstractContextManager[interrupts.Interrupt]:
    """Defers Ctrl-C in a single process; several could not agree on a step."""
    if jax.process_count() > 1:
        return contextlib.nullcontext(interrupts.Interrupt())
    return interrupts.deferred(run.console.print)


def _check_config(
    folder: Path, kept: dict[str, Any], config: dict[str, Any], run: Run
) -> None:
    """Raises if a checkpoint has another config; newer fields may be absent."""
    names = _differing(kept, json.loads(json.dumps(config)))
    if run.launch is not None and run.launch.extends:
        names = [name for name in names if name.rpartition(".")[2] != STEPS]
    if names:
        raise ValueError(
            f"checkpoints: expected those of this config in {folder}, got those of a "
            f"config that differs in {', '.join(names)}; start a new run"
        )


def _differing(kept: dict[str, Any], asked: dict[str, Any], at: str = "") -> list[str]:
    found = []
    for name, value in kept.items():
        other = asked.get(name)
        if isinstance(value, dict) and isinstance(other, dict):
            found += _differing(value, other, f"{at}{name}.")
        elif name not in asked or value != other:
            found.append(f"{at}{name}")
    return found


def _saved(state, kept) -> Any:
    return {"state": state, "snapshots": kept} if kept else state


def _loaded(saved, kept) -> tuple[training.TrainState, dict[str, Any]]:
    return (saved["state"], saved["snapshots"]) if kept else (saved, kept)
