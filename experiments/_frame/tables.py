"""Printed tables as data, which files and pages reuse."""

from typing import Any

from rich.table import Table
from rich.text import Text

__all__ = ["as_data"]


def as_data(table: Table) -> dict[str, Any]:
    """Returns title, column heads and rows of a table as plain text."""
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    return {
        "title": _plain(table.title or ""),
        "columns": [_plain(column.header) for column in table.columns],
        "rows": [list(row) for row in zip(*columns, strict=True)],
        "caption": _plain(table.caption or ""),
    }


def _plain(cell: Any) -> str:
    return cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain
