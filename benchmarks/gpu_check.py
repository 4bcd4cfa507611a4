"""What a few minutes of a GPU can settle, in order, each step within its own time.

Command
    python -m benchmarks.gpu_check FOLDER [--only tests garg_linear ...] [--tiny]

The tests of kernels and training with compiled kernels; ``garg_linear`` at the
published size as a user runs it; steps per second at the published batch, of the preset
and of eight models, with both layouts of tokens, beside our goals, and where their time
goes; the pruning search at the size of GPT-J; the quick cases of the benchmarks.
``FOLDER`` gets a log of each step, and ``steps.json`` what has ended so far. At most
twenty minutes; ``--tiny`` rehearses it on a CPU.
"""

import argparse
import collections
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from benchmarks.garg import PRESETS, Config, chunks, published
from benchmarks.table import duration

MODELS, LONGEST, CHUNK = 8, 25, 100
LAYOUTS = ("interleaved", "shifted")
# Steps of a model per second that were asked of one H200: 16 times the speed of the
# published trainer, and eight models in one program.
GOALS = {1: 800.0, MODELS: 1000.0}
_QUICK = ("--quick", "--deselect=cases/prune_search.py", "--deselect=cases/launches.py")
# Sizes that two cores rehearse in a minute.
_TINY = ("--preset", "cpu", "--steps", "50", "--chunk-steps", "25")


def steps(folder: Path, tiny: bool) -> dict[str, tuple[tuple[str, ...], float]]:
    """Returns the steps by name: arguments of ``python -m``, and its time limit."""
    workers = str(max((os.cpu_count() or 2) - 2, 1))
    tests = ("pytest", "tests/kernels", "tests/training", "-m", "slow or not slow")
    tests += ("-v", "-rfE", "-n", workers, "--maxprocesses", workers)
    garg = ("experiments.garg_linear", "--eval-shifts", "--output", str(folder))
    cases = ("pytest", "benchmarks/cases/trajectory.py" if tiny else "benchmarks")
    stored = f"--benchmark-json={folder / 'benchmarks.json'}"
    search = ("pytest", "benchmarks/cases/prune_search.py")
    return {
        "tests": ((*tests, *(("-k", "tile or batch") if tiny else ())), 170),
        "garg_linear": ((*garg, *(_TINY if tiny else ("--preset", "gpu"))), 200),
        "speeds": (
            ("benchmarks.gpu_check", str(folder), "--speeds", *["--tiny"] * tiny),
            200,
        ),
        "prune_search": ((*search, *["--quick"] * tiny), 330),
        "benchmarks": ((*cases, *_QUICK, stored), 280),
    }


def run(name: str, command: tuple[str, ...], limit: float, folder: Path) -> dict:
    """Runs a step as a process, stops it at its limit, and returns how it ended."""
    begun, late = time.monotonic(), False
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    with Path(folder, f"{name}.log").open("wb") as log:
        child = subprocess.Popen(
            (sys.executable, "-u", "-m", *command),
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        # An interrupt first, after which pytest reports what has failed so far.
        for seconds, last in ((limit, signal.SIGINT), (15, signal.SIGKILL)):
            try:
                child.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                late = True
                os.killpg(child.pid, last)
        child.wait()
    took = time.monotonic() - begun
    return {"step": name, "seconds": took, "late": late, "status": child.returncode}


def programs(preset: str) -> dict[str, Config]:
    """Returns the training steps that are timed."""
    recipe = ("batch_size", "optimizer", "targets")
    changes: dict[str, dict[str, Any]] = {
        "batch 64": {},
        f"{MODELS} models": {"seeds": tuple(range(MODELS))},
        "preset": {name: getattr(PRESETS[preset], name) for name in recipe},
    }
    return {
        f"{name}, {layout}": published(preset, token_layout=layout, **change)
        for name, change in changes.items()
        for layout in LAYOUTS
    }


def speeds(preset: str) -> Iterator[dict[str, Any]]:
    """Times the steps, the fastest of four chunks each, and prints their profiles."""
    for name, config in programs(preset).items():
        running, models = chunks(config, CHUNK), len(config.seeds)
        first, *timed = itertools.islice(running, 5)
        step = min(chunk.seconds for chunk in timed) / CHUNK
        row = {"program": name, "ms": 1e3 * step, "compile_s": first.compile_seconds}
        row["model_steps_per_second"] = models / step
        if preset == "gpu" and not name.startswith("preset"):
            row |= {"asked": GOALS[models], "met": models / step >= GOALS[models]}
        yield row
        spent = profile(lambda own=running: next(own).metrics)
        show(spent, CHUNK)


def profile(call: Callable[[], Any]) -> list[tuple[str, int, float]]:
    """Profiles a call: kind of operation, how often it ran, seconds, longest first.

    Kinds are kernels on a GPU, elsewhere XLA's operations, without their numbers.
    """
    found: dict[str, list[float]] = collections.defaultdict(list)
    with (
        tempfile.TemporaryDirectory(prefix="trace-") as folder,
        warnings.catch_warnings(),
    ):
        with jax.profiler.trace(folder):
            jax.block_until_ready(call())
        (file,) = Path(folder).rglob("*.xplane.pb")
        # Reading an event creates a type for which Python 3.13 issues a warning.
        warnings.simplefilter("ignore", DeprecationWarning)
        planes = list(jax.profiler.ProfileData.from_file(str(file)).planes)
        gpus = [plane for plane in planes if plane.name.startswith("/device:GPU")]
        lines = [line for plane in gpus or planes for line in plane.lines]
        for line in lines:
            for event in line.events:
                if line.name.startswith("Stream") if gpus else _leaf(event):
                    kind = re.sub(r"([._]\d+)+$", "", event.name)
                    found[kind].append(1e-9 * event.duration_ns)
    spent = [(kind, len(times), sum(times)) for kind, times in found.items()]
    return sorted(spent, key=lambda one: -one[2])


def _leaf(event: Any) -> bool:
    holders = ("call", "conditional", "while")  # containers of other operations
    return event.name.split(".")[0] not in holders and "hlo_op" in dict(event.stats)


def show(spent: list[tuple[str, int, float]], steps: int) -> None:
    """Prints the operations that take most of a step's time."""
    calls, total = sum(one[1] for one in spent), sum(one[2] for one in spent)
    print(f"  {duration(total / steps)} per step in {calls / steps:.0f} operations")
    for kind, ran, took in spent[:LONGEST]:
        part = f"{took / total:6.1%}  {duration(took / steps):>8}"
        print(f"  {part}  {ran / steps:6.1f} x {kind[:80]}")


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
    rows: list[dict[str, Any]] = []

    def keep(row: dict[str, Any], name: str) -> None:
        # Rows are stored when they are known, so that a later failure loses none.
        rows.append(row)
        print(row, flush=True)
        (flags.folder / name).write_text(json.dumps(rows, indent=1))

    if flags.speeds:
        for row in speeds("cpu" if flags.tiny else "gpu"):
            keep(row, "speeds.json")
        print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}")
        return 0
    for name, (command, limit) in steps(flags.folder.resolve(), flags.tiny).items():
        if flags.only is None or name in flags.only:
            keep(run(name, command, limit, flags.folder), "steps.json")
    return int(any(row["late"] or row["status"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
