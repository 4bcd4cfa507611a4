"""Converts records to dictionaries, columns, and pandas or polars data frames.

Stability: provisional.
"""

import dataclasses
import importlib
import importlib.util
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from icltheory._checks import check_choice

__all__ = ["to_columns", "to_dict", "to_frame"]

_LIBRARIES = "pandas", "polars"


def to_dict(record: Any) -> dict[str, Any]:
    """Converts a record to plain Python numbers, names, lists and dictionaries.

    A record is a result of this library, a dataclass, a named tuple or a mapping;
    records within it become dictionaries, also those in lists. ``json.dumps`` takes
    the result; :func:`icltheory.strict_json.plain` first, where infinities and NaN have
    to follow the standard.

    Example:
        >>> from icltheory.statistics import Interval
        >>> to_dict({"interval": Interval(0.5, 1.0), "scores": np.array([1, 2])})
        {'interval': {'low': 0.5, 'high': 1.0}, 'scores': [1, 2]}
    """
    if _fields(record) is None:
        raise ValueError(f"record: expected a record, got {type(record).__name__}")
    return _plain(record)


def to_columns(records: Any) -> dict[str, list[Any]]:
    """Converts the fields of records to columns of one length.

    Of several records each is a row, ``None`` where it lacks a field of another, and an
    array in it is one cell, a list. Of one record each entry along the leading axis,
    which all its arrays share, is a row; numbers and names are repeated. Records within
    records become columns with a dot in their names, such as ``comparison.p_value``.

    Example:
        >>> from icltheory.statistics import Estimate
        >>> runs = [Estimate.of([0.5, 1.5]), Estimate.of([2.0, 2.0, 2.0])]
        >>> to_columns(runs)
        {'mean': [1.0, 2.0], 'standard_error': [0.5, 0.0], 'dof': [1, 2]}
        >>> to_columns({"rate": [0.0, 0.5], "score": np.array([17.0, 12.0])})
        {'rate': [0.0, 0.5], 'score': [17.0, 12.0]}
    """
    if _fields(records) is not None:
        flat = _flat(records)
        sizes = {name: len(v) for name, v in flat.items() if _is_column(v)}
        if len(set(sizes.values())) > 1:
            got = ", ".join(f"{name} {size}" for name, size in sizes.items())
            raise ValueError(
                "records: expected arrays of one leading size, or a list of records, "
                f"got {got}"
            )
        count = next(iter(sizes.values()), 1)
        return {
            name: _plain(list(value)) if name in sizes else [_plain(value)] * count
            for name, value in flat.items()
        }
    if not isinstance(records, Iterable):
        raise ValueError(f"records: expected records, got {type(records).__name__}")
    rows = [_flat(record) for record in records]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [_plain(row.get(name)) for row in rows] for name in names}


def to_frame(records: Any, library: str | None = None) -> Any:
    """Converts records to a data frame with the columns of :func:`to_columns`.

    ``library`` is ``"pandas"`` or ``"polars"``; the first that is installed if
    ``None``.

    Example:
        >>> from icltheory.statistics import Estimate
        >>> to_frame([Estimate.of([0.5, 1.5])], "pandas")  # doctest: +SKIP
           mean  standard_error  dof
        0   1.0             0.5    1
    """
    check_choice("library", library, (None, *_LIBRARIES))
    wanted = _LIBRARIES if library is None else (library,)
    found = [name for name in wanted if importlib.util.find_spec(name) is not None]
    if not found:
        raise ValueError(f"library: expected {' or '.join(wanted)} to be installed")
    # A polars column has one type, to which integers among other values are converted.
    options = {"strict": False} if found[0] == "polars" else {}
    return importlib.import_module(found[0]).DataFrame(to_columns(records), **options)


def _fields(value: Any) -> dict[str, Any] | None:
    """Returns the fields of a record, or ``None`` for other values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = [f.name for f in dataclasses.fields(value) if f.repr]
        return {name: getattr(value, name) for name in own}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    return dict(value) if isinstance(value, Mapping) else None


def _flat(record: Any) -> dict[str, Any]:
    """Returns the fields of a record; those of nested records get dotted names."""
    fields, flat = _fields(record), {}
    if fields is None:
        kind = type(record).__name__
        raise ValueError(f"records: expected dataclasses or mappings, got {kind}")
    for name, value in fields.items():
        if _fields(value) is None:
            flat[str(name)] = value
        else:
            flat |= {f"{name}.{part}": v for part, v in _flat(value).items()}
    return flat


def _is_column(value) -> bool:
    """Whether a field is an array, or a sequence of numbers or names."""
    if isinstance(value, (list, tuple)):
        return not any(_fields(part) is not None for part in value)
    return len(getattr(value, "shape", ())) > 0


def _plain(value: Any) -> Any:
    """Converts records to dictionaries, and arrays to Python numbers and lists."""
    fields = _fields(value)
    if fields is not None:
        return {str(name): _plain(part) for name, part in fields.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    is_number = hasattr(value, "tolist") and np.dtype(value.dtype).kind in "biufcUSO"
    return value.tolist() if is_number else value
