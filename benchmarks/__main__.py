"""Runs the benchmark suite on this machine and writes one table and one figure.

Command
    python -m benchmarks [--only NAME ...] [--quick] [--budget 600] [--output DIR]

Ten minutes at most, or what ``--budget`` says: benchmarks shrink or are left out, and
their rows say so. Writes ``MACHINE-DATE.json`` and ``.png`` into the output folder.
Exit status 1 if a benchmark failed or an answer was wrong, after all others ran.
"""

import argparse
import functools
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from benchmarks import _machine, _picture, _results, _runner, _table
from benchmarks._registry import BENCHMARKS
from benchmarks._results import Results
from experiments.frame import Run
from experiments.frame.run import cores_usable


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmarks, writes and prints results, and returns the exit status."""
    args = parser().parse_args(argv)
    try:
        chosen = choose(args.only)
        use_cores(args.cores)
        begun = time.monotonic()
        about = ask_machine()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    about["command"] = command(argv or sys.argv[1:])
    print("; ".join(_table.fact(*peak) for peak in about["peaks"].items()))
    expected, unfit = _runner.in_order(chosen, about["machine"]["backend"])
    if unfit:
        print(f"not for this device: {', '.join(unfit)}")
    left = args.budget - (time.monotonic() - begun) - END_SECONDS
    launch = functools.partial(_runner.in_process, peaks=about["peaks"])

    def keep(rows):
        about["seconds"] = round(time.monotonic() - begun, 1)
        _results.save(Results({**about, "unfinished": True}, rows), args.output)

    rows = _runner.run(expected, left, quick=args.quick, launch=launch, keep=keep)
    about["seconds"] = round(time.monotonic() - begun, 1)
    about["load after"] = _machine.load()
    return finish(Results(about, rows), args.output)


def command(argv: list[str]) -> str:
    """Returns the command that was run, without its ``--output`` option."""
    words = " ".join(["python -m benchmarks", *argv])
    return re.sub(r" --output[ =]\S+", "", words)


# Time reserved for writing the table, the figure and the files.
END_SECONDS = 10.0


def parser() -> argparse.ArgumentParser:
    """Builds the parser of the suite's command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ", ".join(BENCHMARKS)
    made.add_argument("--only", nargs="+", metavar="NAME", help=names)
    made.add_argument("--quick", action="store_true", help="the first case of each")
    made.add_argument("--budget", type=float, default=600.0, help="seconds")
    made.add_argument("--cores", type=int, help="run on so many cores of a CPU")
    made.add_argument("--output", type=Path, default=Path("runs/benchmarks"))
    return made


def choose(only: list[str] | None) -> dict[str, Any]:
    """Returns the benchmarks selected by name, or all of them.

    Raises:
        ValueError: If a name is unknown.
    """
    for name in only or ():
        if name not in BENCHMARKS:
            wanted = ", ".join(BENCHMARKS)
            raise ValueError(f"--only: expected names among {wanted}, got {name}")
    return {name: BENCHMARKS[name] for name in only or BENCHMARKS}


def use_cores(count: int | None) -> None:
    """Restricts this process and its child processes to a number of cores.

    Raises:
        ValueError: If there are not so many, or the system cannot do it.
    """
    if count is None:
        return
    usable = cores_usable()
    if not hasattr(os, "sched_setaffinity") or not 1 <= count <= usable:
        raise ValueError(f"--cores: expected 1 to {usable} on Linux, got {count}")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def ask_machine() -> dict[str, Any]:
    """Describes the machine, as measured in a child process that frees the device.

    Raises:
        ValueError: If that process failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer, complaints = Path(folder, "answer"), Path(folder, "stderr")
        command = [sys.executable, "-m", "benchmarks._machine", str(answer)]
        # On a machine that has just started, most of this time goes into importing
        # libraries.
        why = _runner.call(command, complaints, limit=300)
        if why:
            raise ValueError(f"machine: could not be measured: {why}")
        return json.loads(answer.read_text())


def finish(results: Results, folder: Path) -> int:
    """Writes the result files, prints the table, and returns the exit status."""
    path = _results.save(results, folder)
    picture = Run(folder).save_figure(f"{results.stem}.png", _picture.draw(results))
    console = Console(highlight=False)
    title = f"{results.title}, {results.about['seconds']:.0f} s{results.warning}"
    _table.show(results.rows, title, console)
    print(f"{path}\n{picture}")
    bad = [row for row in results.rows if row.bad]
    for row in bad:
        print(f"{row.group}: {row.name}: {_table.note(row)}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    # This process computes nothing, so that its child processes can use the device.
    jax.config.update("jax_platforms", "cpu")
    sys.exit(main())
