"""Compares two result files row by row and reports rows that became slower.

Command
    python -m benchmarks.compare BEFORE.json AFTER.json [--tolerance 1.25]

``time`` is our time after over before. A machine that was busier makes it grow, so the
two numbers that cancel that stand beside it, each from within its own run: how the
ratio to the alternative and the share of the floor changed. A row is slower if its time
grew by more than the tolerance and both of these that are known shrank by as much.
Exit status 1 if a row is slower or no longer there, but not if it was left out. Other
machines are refused, unless asked for by ``--other-machine``.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks import _results, _table
from benchmarks._results import Results
from benchmarks._suite import BenchmarkRow


class Change(NamedTuple):
    """Changes of one row between two runs.

    Attributes:
        row: The row, from the later run if it has it.
        time: Our seconds after over before.
        ratio: Ratio to the alternative, after over before.
        share: Share of the floor, after over before.
        missing: ``"left out"`` or ``"gone"`` if the later run did not measure it.
    """

    row: BenchmarkRow
    time: float | None
    ratio: float | None
    share: float | None
    missing: str = ""

    def verdict(self, tolerance: float) -> str:
        """Classifies the change: slower, faster, new, missing, or the empty string."""
        if self.missing:
            return self.missing
        if self.time is None:
            return "new"
        within = [change for change in (self.ratio, self.share) if change is not None]
        if self.time > tolerance and all(c < 1 / tolerance for c in within):
            return "slower"
        if self.time < 1 / tolerance and all(c > tolerance for c in within):
            return "faster"
        return ""


def changes(before: Results, after: Results) -> Iterator[Change]:
    """Yields the changes of all rows that either run measured."""
    old, new = (_measured(results) for results in (before, after))
    left_out = {row.key[:2] for row in after.rows if row.left_out}
    for key in [*old, *(key for key in new if key not in old)]:
        was, now = old.get(key, BenchmarkRow()), new.get(key, BenchmarkRow())
        yield Change(
            new.get(key, was),
            _over(now.ours_s, was.ours_s),
            _over(now.ratio, was.ratio),
            _over(now.share_of_floor, was.share_of_floor),
            "" if key in new else ("left out" if key[:2] in left_out else "gone"),
        )


def _measured(results: Results) -> dict[tuple[str, str, str], BenchmarkRow]:
    return {row.key: row for row in results.rows if row.status == "measured"}


def _over(after: float | None, before: float | None) -> float | None:
    return after / before if after is not None and before else None


def check_machines(before: Results, after: Results) -> None:
    """Raises unless both result files come from the same machine.

    Raises:
        ValueError: If their names differ.
    """
    if before.machine != after.machine:
        raise ValueError(
            f"machines: expected results of one machine, got {before.machine!r} and "
            f"{after.machine!r}; pass --other-machine to compare them anyway"
        )


def main(argv: list[str] | None = None) -> int:
    """Prints the comparison and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--tolerance", type=float, default=1.25)
    parser.add_argument("--other-machine", action="store_true")
    args = parser.parse_args(argv)
    try:
        before, after = _results.load(args.before), _results.load(args.after)
        if not args.other_machine:
            check_machines(before, after)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    found = list(changes(before, after))
    show(
        found,
        args.tolerance,
        f"{after.title}{after.warning}\nover {before.title}{before.warning}",
    )
    return int(any(c.verdict(args.tolerance) in ("slower", "gone") for c in found))


def show(found: list[Change], tolerance: float, title: str) -> None:
    """Prints the comparison as a table."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140
    table = Table(title=title, title_justify="left")
    for name in ("", "", "time", "ratio", "share of floor", "verdict"):
        table.add_column(name, justify="left" if name in ("", "verdict") else "right")
    for change in found:
        numbers = (change.time, change.ratio, change.share)
        names = (change.row.group, change.row.name)
        cells = [*names, *map(_table.number, numbers), change.verdict(tolerance)]
        table.add_row(*map(_table.escaped, cells))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
