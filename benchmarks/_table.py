"""The table of results, with the same cells in the terminal and in Markdown."""

import itertools
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks._suite import BenchmarkRow

HEADER = (
    *("", "ours", "alternative", "its time", "ratio", "floor", "share of floor"),
    *("precision", "difference", "note"),
)
# Columns of space around a cell
_MARGIN = 3
_LEFT = {"", "alternative", "precision", "note"}


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
    """Formats a number with its unit, the last word of its name: "compile 1.3 s".

    A name that ends in a colon has no unit.
    """
    if name.endswith(":"):
        return f"{name} {number(value)}"
    *what, unit = name.split(" ")
    return " ".join([*what, number(value), unit])


def note(row: BenchmarkRow) -> str:
    """Returns the note of a row with its status and its additional numbers."""
    verdict = {"failed": "FAILED"}.get(row.status, "left out" if row.left_out else "")
    if row.wrong:
        verdict = f"WRONG, at most {number(row.tolerance)} allowed"
    text = ": ".join(part for part in (verdict, row.note) if part)
    facts = ", ".join(fact(*item) for item in row.facts.items())
    return "; ".join(part for part in (text, facts) if part)


def cells(row: BenchmarkRow) -> list[str]:
    """Returns the cells of a row as text, in the order of ``HEADER``."""
    return [
        *(row.name, duration(row.ours_s), row.alternative or "-"),
        *(duration(row.alternative_s), number(row.ratio), duration(row.floor_s)),
        *(number(row.share_of_floor), row.precision, number(row.error), note(row)),
    ]


def line(row: BenchmarkRow) -> str:
    """Formats a row as one line of progress output."""
    parts = []
    if row.status == "measured":
        parts.append(duration(row.ours_s))
        if row.ratio is not None:
            parts.append(f"{number(row.ratio)} x {row.alternative}")
    if row.bad or row.left_out:
        parts.append(note(row))
    return f"{row.name or row.group or 'benchmark'}: {', '.join(parts)}"


def grouped(rows: Iterable[BenchmarkRow]) -> Iterable[tuple[str, list[BenchmarkRow]]]:
    """Groups rows by their group name, in order of first appearance."""
    for group, members in itertools.groupby(rows, key=lambda row: row.group):
        yield group, list(members)


def show(
    rows: Sequence[BenchmarkRow], title: str = "", console: Console | None = None
) -> None:
    """Prints all rows as one table with columns aligned over the groups."""
    if console is None:
        console = Console(highlight=False)
    # In a file or a pipe, rich would wrap all lines at 80 columns.
    if not console.is_terminal:
        console.width = 180
    if title:
        console.print(f"\n[bold]{escaped(title)}[/]")
    texts = [cells(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(HEADER, *texts, strict=True)]
    left = console.width - sum(widths[:-1]) - _MARGIN * len(HEADER)
    # In a narrow terminal columns wrap within each group instead of being cut off.
    aligned = left >= len("left out: quick run")
    for group, members in grouped(rows):
        table = Table(title=escaped(group), title_justify="left", box=SIMPLE_HEAD)
        for name, width in zip(HEADER[:-1], widths[:-1], strict=True):
            side = "left" if name in _LEFT else "right"
            table.add_column(name, justify=side, width=width if aligned else None)
        table.add_column(HEADER[-1], width=left if aligned else None)
        for row in members:
            style = "red" if row.bad else ("dim" if row.left_out else None)
            table.add_row(*map(escaped, cells(row)), style=style)
        console.print(table)


def escaped(text: str) -> str:
    return text.replace("[", r"\[")


def markdown(rows: Sequence[BenchmarkRow]) -> str:
    """Returns one Markdown table per group, each under its title."""
    parts = []
    for group, members in grouped(rows):
        lines = [HEADER, ["---"] * len(HEADER), *map(cells, members)]
        body = ["| " + " | ".join(_piped(cell) for cell in row) + " |" for row in lines]
        parts.append("\n".join([f"**{group}**", "", *body]))
    return "\n\n".join(parts) + "\n"


def _piped(text: str) -> str:
    return text.replace("|", r"\|")
