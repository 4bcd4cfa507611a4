"""What a few minutes of a GPU can settle, in order, each step within its own time.

Command
    python -m benchmarks.gpu_check FOLDER [--only tests garg_linear ...] [--tiny]

The tests of kernels and training with compiled kernels; ``garg_linear`` at the
published size as a user runs it; steps per second at the published batch, of the preset
and of eight models, with both layouts of tokens; the pruning search at the size of
GPT-J; the suite's quick cases. ``FOLDER`` gets a log of each step, and ``steps.json``
what has ended so far. At most twenty minutes; ``--tiny`` rehearses it on a CPU.
"""

import argparse
import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
from rich.console import Console

from benchmarks import _table
from benchmarks._profile import profile
from benchmarks.goals import MODELS, chunks, longest_of
from experiments.frame import Run
from experiments.garg_linear import PRESETS, Config, set_up
from icltheory.training import Curriculum, OptimizerConfig

LAYOUTS = ("interleaved", "shifted")
_TESTS = ("tests/kernels", "tests/training", "-m", "slow or not slow", "-v", "-rfE")
# Sizes that two cores rehearse in a minute.
_TINY = ("--preset", "cpu", "--steps", "50", "--chunk-steps", "25")


class Step(NamedTuple):
    """One step: the arguments of ``python -m``, and its time limit."""

    command: tuple[str, ...]
    seconds: float


def steps(folder: Path, tiny: bool) -> dict[str, Step]:
    """Returns the steps by name, in order."""
    workers = str(max((os.cpu_count() or 2) - 2, 1))
    tests = ("-n", workers, "--maxprocesses", workers, "-p", "no:benchmark")
    garg = ("experiments.garg_linear", "--eval-shifts", "--output", str(folder))
    suite = ("trajectory", "bounds", "exact_risk", "predictors", "pruning_sweep")
    suite += ("theory", "kernels", "flow", "ensemble")
    return {
        "tests": Step(
            ("pytest", *_TESTS, *tests, *(("-k", "tile or batch") if tiny else ())), 170
        ),
        "garg_linear": Step((*garg, *(_TINY if tiny else ("--preset", "gpu"))), 200),
        "speeds": Step(
            ("benchmarks.gpu_check", str(folder), "--speeds", *["--tiny"] * tiny), 200
        ),
        "prune_search": Step(("benchmarks.prune_search", "--budget", "310"), 330),
        "suite": Step(
            ("benchmarks", "--quick", "--budget", "250", "--output", str(folder))
            + ("--only", *(suite[:1] if tiny else suite)),
            280,
        ),
    }


def run(name: str, step: Step, folder: Path) -> dict[str, Any]:
    """Runs a step as a process, stops it at its limit, and returns how it ended."""
    begun = time.monotonic()
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    with Path(folder, f"{name}.log").open("wb") as log:
        child = subprocess.Popen(
            (sys.executable, "-u", "-m", *step.command),
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        late = False
        # An interrupt first, after which pytest reports what has failed so far.
        for seconds, last in ((step.seconds, signal.SIGINT), (15, signal.SIGKILL)):
            try:
                child.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                late = True
                os.killpg(child.pid, last)
        child.wait()
    took = time.monotonic() - begun
    return {"step": name, "seconds": took, "late": late, "status": child.returncode}


def published(preset: Config, **change: Any) -> Config:
    """Returns the published recipe at its batch: Adam, labels, no curriculum."""
    return dataclasses.replace(
        preset,
        batch_size=64,
        optimizer=OptimizerConfig("adam", 1e-4),
        curriculum=Curriculum.none(preset.dim, preset.num_points),
        targets="labels",
        chunk_steps=100,
        **change,
    )


def programs(preset: Config) -> dict[str, Config]:
    """Returns the training steps that are timed."""
    found = {}
    many = tuple(range(MODELS))
    for layout in LAYOUTS:
        own: dict[str, Any] = {"token_layout": layout}
        found[f"batch 64, {layout}"] = published(preset, **own)
        found[f"{MODELS} models, {layout}"] = published(preset, seeds=many, **own)
        found[f"preset, {layout}"] = dataclasses.replace(
            preset, chunk_steps=100, snapshots=(1.0,), **own
        )
    return dict(sorted(found.items()))


def speeds(preset: Config) -> Iterator[dict[str, Any]]:
    """Times the steps, the fastest of four chunks each, and prints their profiles."""
    for name, config in programs(preset).items():
        steps = config.chunk_steps
        running = chunks(set_up(config, devices=1), 6 * steps)
        first, *timed = itertools.islice(running, 5)
        step = min(chunk.seconds for chunk in timed) / steps
        row = {"program": name, "ms": 1e3 * step, "compile_s": first.compile_seconds}
        yield row | {"model_steps_per_second": len(config.seeds) / step}
        spent = profile(lambda own=running: next(own).metrics)
        Console(width=120).print(longest_of(spent, steps))


def main(argv: list[str] | None = None) -> int:
    """Runs the steps; the status is 1 if one failed or was stopped."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--speeds", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args(argv)
    flags.folder.mkdir(parents=True, exist_ok=True)
    store, rows = Run(flags.folder), []
    if flags.speeds:
        for row in speeds(PRESETS["cpu" if flags.tiny else "gpu"]):
            rows.append(row)
            print(row, flush=True)
            store.write_json("speeds.json", rows)
        print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}")
        return 0
    for name, step in steps(flags.folder, flags.tiny).items():
        if flags.only is None or name in flags.only:
            rows.append(run(name, step, flags.folder))
            took = _table.duration(rows[-1]["seconds"])
            late = "stopped" if rows[-1]["late"] else f"status {rows[-1]['status']}"
            print(f"{name}: {took}, {late}", flush=True)
            store.write_json("steps.json", rows)
    return int(any(row["late"] or row["status"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
