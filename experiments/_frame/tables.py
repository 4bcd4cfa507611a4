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

    Each part begins with the leading columns that tell the rows apart.
    """
    widths = [_BESIDE + _needed(column, console) for column in table.columns]
    if 1 + sum(widths) <= console.width:
        return [table]
    lead = _identifying(table)
    free = console.width - 1 - sum(widths[:lead])
    parts: list[list[int]] = [[]]
    for place in range(lead, len(widths)):
        if parts[-1] and sum(widths[at] for at in [*parts[-1], place]) > free:
            parts.append([])
        parts[-1].append(place)
    every = [_part(table, [*range(lead), *places]) for places in parts]
    for part in every[1:]:
        part.title = None
    for part in every[:-1]:
        part.caption = None
    return every


def _needed(column: Column, console: Console) -> int:
    """Returns the width of a column in which no word of it is cut."""
    sizes = [
        Measurement.get(console, console.options, cell)
        for cell in (column.header, *column.cells)
    ]
    return max(size.maximum if column.no_wrap else size.minimum for size in sizes)


def _identifying(table: Table) -> int:
    """Returns the least number of leading columns in which no two rows are equal."""
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    for count in range(1, len(table.columns)):
        if len({tuple(map(_plain, row[:count])) for row in rows}) == len(rows):
            return count
    return 1


def _part(table: Table, places: list[int]) -> Table:
    part = copy.copy(table)
    part.columns = [
        dataclasses.replace(table.columns[place], _index=at)
        for at, place in enumerate(places)
    ]
    return part


def _plain(cell: Any) -> str:
    return cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain
