"""Runs benchmarks one after the other, each in a process of its own.

A process of its own gives the device's memory back, cannot take the others along when
it dies, and can be stopped when it hangs.
"""

import dataclasses
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks._registry import Expected
from benchmarks._suite import BenchmarkRow

# Time for importing jax and this package, before a benchmark's own time begins.
START_SECONDS = 5.0
_STOPPED = "stopped after"
_ALL = "all"


class Slot(NamedTuple):
    """One benchmark with its time limits.

    Attributes:
        name: Of the module.
        seconds: What it may take, its start included.
        limit: When it is stopped.
        last: Whether the budget ends then.
        quick: Whether only its first case is wanted.
        wanted: Groups and names of the only cases wanted; all if there are none.
    """

    name: str
    seconds: float
    limit: float
    last: bool
    quick: bool
    wanted: tuple[tuple[str, str], ...] = ()


Launch = Callable[[Slot], Sequence[BenchmarkRow]]


def in_order(
    chosen: Mapping[str, Expected], backend: str
) -> tuple[dict[str, float], list[str]]:
    """Sorts benchmarks by expected time, and lists those this backend cannot run."""
    column = "gpu" if backend == "gpu" else "cpu"
    times = {name: getattr(expected, column) for name, expected in chosen.items()}
    fitting = {name: s for name, s in times.items() if s is not None}
    unfit = [name for name in times if name not in fitting]
    return dict(sorted(fitting.items(), key=lambda item: item[1])), unfit


def run(
    expected: Mapping[str, float],
    budget: float,
    *,
    quick: bool = False,
    launch: Launch,
    clock: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = print,
    keep: Callable[[tuple[BenchmarkRow, ...]], object] = len,
) -> tuple[BenchmarkRow, ...]:
    """Runs all benchmarks within the time budget and returns their rows.

    Each gets a share of the time left, as it expects of the rest: less than it expects
    or, for a machine slower than expected, more. What one leaves over goes to the next,
    and what all leave over to the cases that had no time in their share. ``keep`` gets
    all rows so far after each benchmark, so that an interrupted suite keeps them.
    """
    deadline, found = clock() + budget, dict[str, list[BenchmarkRow]]()
    names = list(expected)
    for number, name in enumerate(names):
        left = deadline - clock()
        rest = sum(expected[other] for other in names[number:])
        seconds = expected[name] * left / rest
        if seconds <= START_SECONDS:
            why = f"{max(left, 0):.0f} s of the budget left"
            found[name] = [BenchmarkRow.late(name, _ALL, why)]
            continue
        say(f"[{number + 1}/{len(names)}] {name}, at most about {seconds:.0f} s")
        # A benchmark far beyond its share is taken to hang; one that exceeds the total
        # budget is only late.
        limit = min(left, 3 * seconds + 30)
        found[name] = list(launch(Slot(name, seconds, limit, limit == left, quick)))
        keep(_all_of(found))
    for name, rows in found.items():
        late = [row for row in rows if row.status == "late"]
        left = deadline - clock()
        if late and left > 2 * START_SECONDS:
            say(f"{name}, what it left out, at most about {left:.0f} s")
            wanted = tuple(row.key[:2] for row in late if row.name != _ALL)
            again = launch(Slot(name, left, left, True, quick, wanted))
            found[name] = _joined(rows, late, again)
            keep(_all_of(found))
    return _all_of(found)


def _all_of(found: Mapping[str, list[BenchmarkRow]]) -> tuple[BenchmarkRow, ...]:
    return tuple(itertools.chain.from_iterable(found.values()))


def _joined(
    rows: list[BenchmarkRow], late: list[BenchmarkRow], again: Sequence[BenchmarkRow]
) -> list[BenchmarkRow]:
    """Replaces the rows that had no time left by those of a second attempt."""
    joined = [row for row in rows if row not in late] + list(again)
    order = list(dict.fromkeys(row.group for row in [*rows, *again]))
    return sorted(joined, key=lambda row: order.index(row.group))


def in_process(
    slot: Slot, peaks: Mapping[str, float] | None = None
) -> list[BenchmarkRow]:
    """Runs ``python -m benchmarks.NAME`` and returns its rows, also if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        rows, complaints = Path(folder, "rows"), Path(folder, "stderr")
        seconds = max(slot.seconds - START_SECONDS, 1.0)
        command = [sys.executable, "-m", f"benchmarks.{slot.name}"]
        command += ["--rows", str(rows), "--budget", f"{seconds:.1f}"]
        command += ["--peaks", json.dumps(peaks or {}), *["--quick"] * slot.quick]
        command += ["--wanted", json.dumps(slot.wanted)]
        why = call(command, complaints, slot.limit)
        lines = rows.read_text().splitlines() if rows.exists() else []
    # Rows that failed before their group was known get the benchmark's name.
    found = [_named(row, slot.name) for line in lines for row in _read(line)]
    if not why:
        return found
    late = slot.last and why.startswith(_STOPPED)
    made = BenchmarkRow.late if late else BenchmarkRow.failed
    return [*found, made(slot.name, "the rest", why)]


def _read(line: str) -> list[BenchmarkRow]:
    """Parses a row from a line of JSON; returns no row if the line is incomplete."""
    try:
        return [BenchmarkRow(**json.loads(line))]
    except ValueError:
        return []


def _named(row: BenchmarkRow, name: str) -> BenchmarkRow:
    return row if row.group else dataclasses.replace(row, group=name)


def call(command: list[str], complaints: Path, limit: float) -> str:
    """Runs a command and returns a description of its failure, or an empty string."""
    with complaints.open("w") as errors:
        try:
            status = subprocess.run(command, stderr=errors, timeout=limit).returncode
        except subprocess.TimeoutExpired:
            return f"{_STOPPED} {limit:.0f} s"
    if not status:
        return ""
    text = complaints.read_text(errors="replace")
    lines = text.strip().splitlines() or ["no message"]
    if len(lines) > 1:
        print(text, file=sys.stderr, end="")
    last = lines[-1]
    return f"exit status {status}: {last}"
