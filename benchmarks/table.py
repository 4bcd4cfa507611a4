"""The table of ratios, with the same cells in the terminal and in Markdown."""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

HEADER = (
    *("", "ours", "alternative", "its time", "ratio", "floor", "share of floor"),
    *("precision", "difference", "note"),
)
_LEFT = {"", "alternative", "precision", "note"}
# Mean number of running processes before a run, above which times are doubtful.
_BUSY = 0.5
# An entry of pytest-benchmark's JSON; its ``extra_info`` is what suite.measure adds.
Entry = dict[str, Any]


def load(path: Path) -> dict[str, Any]:
    """Reads a file that ``pytest benchmarks --benchmark-json FILE`` wrote.

    Raises:
        ValueError: If it is none.
    """
    try:
        stored = json.loads(path.read_text())
        heading(stored), list(map(cells, stored["benchmarks"]))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            "results: expected a file written by pytest benchmarks --benchmark-json, "
            f"got {path} ({type(error).__name__}: {error})"
        ) from error
    return stored


def number(value: float | None) -> str:
    """Formats a number with three significant digits, or a dash for ``None``."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if 100 <= abs(value) < 1e7 else f"{value:.3g}"


def duration(seconds: float | None) -> str:
    """Formats a duration in a suitable unit, or a dash for ``None``."""
    if seconds is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{number(seconds / size)} {unit}"
    return f"{number(seconds * 1e9)} ns"


def fact(name: str, value: float) -> str:
    """Formats a number with its unit, the last word of its name: "compile 1.3 s"."""
    if name.endswith(":"):
        return f"{name} {number(value)}"
    *what, unit = name.split(" ")
    return " ".join([*what, number(value), unit])


def quotient(a: float | None, b: float | None) -> float | None:
    """Returns a / b, or ``None`` without one of them."""
    return a / b if a is not None and b else None


def ratio(entry: Entry) -> float | None:
    """Returns the time of the alternative divided by our time."""
    about = entry["extra_info"]
    ours = quotient(entry["stats"]["median"], about.get("per", 1))
    return quotient(about["alternative_s"], ours)


def cells(entry: Entry) -> list[str]:
    """Returns the cells of a row as text, in the order of ``HEADER``."""
    about = entry["extra_info"]
    ours = quotient(entry["stats"]["median"], about.get("per", 1))
    error, allowed, floor = about["error"], about["tolerance"], about["floor_s"]
    wrong = error is not None and allowed is not None and not error <= allowed
    verdict = f"WRONG, at most {number(allowed)} allowed" if wrong else ""
    facts = ", ".join(fact(*item) for item in about["facts"].items())
    note = "; ".join(part for part in (verdict, about["note"], facts) if part)
    return [
        *(entry["param"], duration(ours), about["alternative"] or "-"),
        *(duration(about["alternative_s"]), number(ratio(entry)), duration(floor)),
        *(number(quotient(floor, ours)), about["precision"], number(error), note),
    ]


def grouped(entries: Iterable[Entry]) -> Iterator[tuple[str, Iterator[Entry]]]:
    """Groups entries by their group, in order of first appearance."""
    known = list(entries)
    order = list(dict.fromkeys(entry["group"] for entry in known))
    known.sort(key=lambda entry: order.index(entry["group"]))
    return itertools.groupby(known, key=lambda entry: entry["group"])


def heading(stored: dict[str, Any]) -> str:
    """Returns the machine, the versions and the peak rates as a sentence each."""
    about = stored["machine_info"]
    versions = {name.lower(): name for name in ("Python", "jax", "torch")}
    known = [
        f"{versions[key]} {v}"
        for key, v in about["versions"].items()
        if key in versions
    ]
    busy = about["load before"] or 0.0
    warning = f"; {busy:.1f} processes ran when it began" if busy >= _BUSY else ""
    peaks = "; ".join(fact(*peak) for peak in about["peaks"].items())
    return (
        f"{about['name']}, {stored['datetime'][:10]} ({', '.join(known)}), "
        f"revision {about['revision']}{warning}.\nPeaks: {peaks}.\n"
    )


def markdown(entries: Iterable[Entry]) -> str:
    """Returns one Markdown table per group, each under its title."""
    parts = []
    for group, members in grouped(entries):
        lines = [HEADER, ["---"] * len(HEADER), *map(cells, members)]
        rows = (" | ".join(cell.replace("|", r"\|") for cell in row) for row in lines)
        parts.append("\n".join([f"**{group}**", "", *(f"| {row} |" for row in rows)]))
    return "\n\n".join(parts) + "\n"


def show(entries: Sequence[Entry], before: Sequence[Entry] = ()) -> None:
    """Prints one table per group, with the ratio of another run if there is one."""
    console = Console(highlight=False)
    # In a file or a pipe, rich would wrap all lines at 80 columns.
    if not console.is_terminal:
        console.width = 180
    known = {(old["group"], old["param"]): ratio(old) for old in before}
    header = (*HEADER[:5], *(("before",) if before else ()), *HEADER[5:])
    for group, members in grouped(entries):
        table = Table(title=escape(group), title_justify="left", box=SIMPLE_HEAD)
        for name in header:
            table.add_column(name, justify="left" if name in _LEFT else "right")
        for entry in members:
            row = cells(entry)
            if before:
                row.insert(5, number(known.get((group, entry["param"]))))
            style = "red" if row[-1].startswith("WRONG") else None
            table.add_row(*map(escape, row), style=style)
        console.print(table)
