"""Printed tables: as data, which files and pages reuse, and in parts that fit."""

import copy
import dataclasses
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

__all__ = ["as_data", "fitting"]

# Of a column: one border and a space on each side.
_BESIDE = 3


def as_data(table: Table) -> dict[str, Any]:
    """Returns title, column heads and rows of a table as plain text."""
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    return {
        "title": _plain(table.title or ""),
        "columns": [_plain(column.header) for column in table.columns],
        "rows": [list(row) for row in zip(*columns, strict=True)],
        "caption": _plain(table.caption or ""),
    }


def fitting(table: Table, console: Console) -> list[Table]:
    """Splits a table that is too wide for the console into parts with fewer columns.

    Each part begins with the leading columns that tell the rows apart. No word is cut
    in a column that is as wide as the console at most.
    """
    sizes = [_size(column, console) for column in table.columns]
    least = [_BESIDE + size.minimum for size in sizes]
    lead, parts = _identifying(table), [[*range(len(least))]]
    if 1 + sum(least) > console.width:
        free = console.width - 1 - sum(least[:lead])
        parts = [[*range(lead)]]
        for place in range(lead, len(least)):
            own = sum(least[at] for at in parts[-1][lead:])
            if len(parts[-1]) > lead and own + least[place] > free:
                parts.append([*range(lead)])
            parts[-1].append(place)
    every = [_part(table, places, sizes, console.width) for places in parts]
    for part in every[1:]:
        part.title = None
    for part in every[:-1]:
        part.caption = None
    return every


def _size(column: Column, console: Console) -> Measurement:
    """Returns the widths of a column's longest word, or line, and of its longest line.

    Only columns that wrap can have less than their longest line.
    """
    cells = [
        Measurement.get(console, console.options, cell)
        for cell in (column.header, *column.cells)
    ]
    longest = max(cell.maximum for cell in cells)
    words = max(cell.minimum for cell in cells)
    return Measurement(longest if column.no_wrap else words, longest)


def _identifying(table: Table) -> int:
    """Returns the least number of leading columns in which no two rows are equal."""
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    for count in range(1, len(table.columns)):
        if len({tuple(map(_plain, row[:count])) for row in rows}) == len(rows):
            return count
    return 1


def _part(
    table: Table, places: list[int], sizes: list[Measurement], width: int
) -> Table:
    """Returns some columns; if they have to wrap, those that lack most get the rest."""
    widths = [sizes[place].minimum for place in places]
    lacking = [sizes[place].maximum - sizes[place].minimum for place in places]
    spare = width - 1 - sum(_BESIDE + own for own in widths)
    wraps = 0 <= spare < sum(lacking)
    for _ in range(spare if wraps else 0):
        most = lacking.index(max(lacking))
        widths[most] += 1
        lacking[most] -= 1
    part = copy.copy(table)
    part.columns = [
        dataclasses.replace(
            column, _index=at, width=widths[at] if wraps else column.width
        )
        for at, column in enumerate(table.columns[place] for place in places)
    ]
    return part


def _plain(cell: Any) -> str:
    return cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain
