"""Runs one benchmark by itself: as a command, or as a child process of the suite."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rich.console import Console

from benchmarks import _measure, _table
from benchmarks._suite import BenchmarkRow, Budget

Measure = Callable[[Budget], Iterable[BenchmarkRow]]


def main(measure: Measure, argv: list[str] | None = None) -> None:
    """Runs a benchmark, prints each row when it is measured, and the table at the end.

    The suite asks for ``--rows FILE``, to which each row is appended as a line of JSON
    instead, so that those measured are kept if the process does not live to the end,
    and hands over the ceilings it measured as ``--peaks`` and the only cases to measure
    as ``--wanted``.

    Raises:
        SystemExit: With status 1 if a row failed or is wrong, and 2 without a device.
    """
    parser = argparse.ArgumentParser(description="See the head of this module.")
    parser.add_argument("--budget", type=float, default=float("inf"))
    parser.add_argument("--quick", action="store_true", help="the first case only")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--peaks", default="{}", help=argparse.SUPPRESS)
    parser.add_argument("--wanted", default="[]", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.rows is None:
        require_device()
    _measure.KNOWN.update(json.loads(args.peaks))
    console, rows = Console(highlight=False), []
    budget = Budget(args.budget, args.quick, json.loads(args.wanted))
    for row in guarded(measure, budget):
        console.print(f"  {_table.line(row)}", markup=False, soft_wrap=True)
        rows.append(row)
        if args.rows is not None:
            with args.rows.open("a") as file:
                file.write(json.dumps(row.as_dict()) + "\n")
    if args.rows is None:
        _table.show(rows)
        if args.markdown is not None:
            args.markdown.write_text(_table.markdown(rows))
        if any(row.bad for row in rows):
            raise SystemExit(1)


def require_device() -> None:
    """Exits with status 2 if JAX finds none; a process of its own leaves it free."""
    code = "from experiments.frame.exits import require_platform as f; f()"
    named = os.environ.get("JAX_PLATFORMS")
    if named and subprocess.run([sys.executable, "-c", code]).returncode:
        raise SystemExit(2)


def guarded(measure: Measure, budget: Budget) -> Iterator[BenchmarkRow]:
    """Yields the rows of a benchmark, and a failed row if it raises an exception."""
    try:
        yield from measure(budget)
    except Exception as error:
        yield BenchmarkRow.failed("", "", error)
