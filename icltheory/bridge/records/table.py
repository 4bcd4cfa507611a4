"""Arrays built from records, independent of the order of writing."""

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np

from icltheory.strict_json import number

__all__ = ["RecordTable"]


class RecordTable(NamedTuple):
    """Records as an array with rows and columns in ascending order.

    Args:
        rows: Key of each row, such as (layer, module, rate).
        columns: The examples.
        values: What was recorded, (rows, columns) or, for lists, (rows, columns, K).
            Where nothing was it is -1 for whole numbers and booleans, NaN for others.
        present: Where something was recorded, (rows, columns).
    """

    rows: tuple[tuple[Hashable, ...], ...]
    columns: tuple[Hashable, ...]
    values: np.ndarray
    present: np.ndarray


def tabulate(cells: Mapping[tuple, Any], axis: int) -> RecordTable:
    """Builds a table of values by key; part ``axis`` of a key is the column."""
    split = {key: (key[:axis] + key[axis + 1 :], key[axis]) for key in cells}
    rows = tuple(sorted({row for row, _ in split.values()}, key=_order))
    columns = tuple(sorted({column for _, column in split.values()}))
    row_of = {row: i for i, row in enumerate(rows)}
    column_of = {column: i for i, column in enumerate(columns)}
    where = tuple(
        np.array([(row_of[row], column_of[c]) for row, c in split.values()], int)
        .reshape(-1, 2)
        .T
    )
    flat = _stacked([number(value) for value in cells.values()])
    shape = (len(rows), len(columns))
    fill = np.nan if np.issubdtype(flat.dtype, np.floating) else -1
    values, present = np.full((*shape, *flat.shape[1:]), fill), np.zeros(shape, bool)
    values[where], present[where] = flat, True
    return RecordTable(rows, columns, values, present)


def _order(key: tuple) -> list[tuple]:
    """Sort key for keys with mixed numbers and text; numbers come first."""
    return [(isinstance(part, str), part) for part in key]


def _stacked(values: list[Any]) -> np.ndarray:
    """Stacks values as integers if all are integers, else as floats."""
    lengths = {len(v) if isinstance(v, list) else None for v in values}
    if len(lengths) > 1:
        raise ValueError(f"value: expected lists of one length, got {lengths}")
    whole = all(isinstance(value, int) for value in values)
    return np.array(values, np.int64 if whole else np.float64)
