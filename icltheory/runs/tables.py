"""Records as JSON, as columns of numbers, and as data frames of pandas or polars."""

import dataclasses
import importlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

_WORDS = {math.inf: "Infinity", -math.inf: "-Infinity"}
_NUMBERS = {word: value for value, word in _WORDS.items()}


def plain(value: Any) -> Any:
    """Converts arrays, scalars, dataclasses and containers to strict JSON values.

    Infinities become ``"Infinity"`` and ``"-Infinity"``, NaN becomes ``None``.

    Example:
        >>> import numpy as np
        >>> plain({"bound": np.array([0.5, np.inf, np.nan])})
        {'bound': [0.5, 'Infinity', None]}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy and JAX
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return _WORDS.get(value)
    if value is not None and not isinstance(value, (str, int, float)):
        raise ValueError(f"value: expected what JSON can hold, got {type(value)}")
    return value


def number(value: Any) -> Any:
    """Converts a JSON value of :func:`plain` back to a number or a list of numbers.

    Example:
        >>> number([0.5, "Infinity", None])
        [0.5, inf, nan]
    """
    if isinstance(value, list):
        return [number(part) for part in value]
    if isinstance(value, str):
        if value not in _NUMBERS:
            raise ValueError(f"value: expected a number, got {value!r}")
        return _NUMBERS[value]
    return math.nan if value is None else value


def to_columns(records: Iterable[Any]) -> dict[str, list[Any]]:
    """Converts records to columns of one length: a row for each record.

    A record is a result of this library, a dataclass, a named tuple or a mapping. Names
    of records within records are joined by dots, an array is one cell, a list, and what
    a record lacks is ``None``.

    Example:
        >>> from icltheory.statistics import Estimate
        >>> to_columns([Estimate.of([0.5, 1.5]), Estimate.of([2.0, 2.0, 2.0])])
        {'mean': [1.0, 2.0], 'standard_error': [0.5, 0.0], 'dof': [1, 2]}
    """
    rows = [flat(record) for record in records]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [_cell(row.get(name)) for row in rows] for name in names}


def to_frame(records: Iterable[Any], library: str = "pandas") -> Any:
    """Converts records to a data frame of pandas or polars, a row for each record.

    Example:
        >>> from icltheory.statistics import Estimate
        >>> to_frame([Estimate.of([0.5, 1.5])])  # doctest: +SKIP
           mean  standard_error  dof
        0   1.0             0.5    1
    """
    return frame_of(to_columns(records), library)


def frame_of(columns: dict[str, list[Any]], library: str) -> Any:
    """Makes a data frame of columns."""
    if library not in ("pandas", "polars"):
        raise ValueError(f"library: expected 'pandas' or 'polars', got {library!r}")
    # A polars column has one type, to which integers among other values are converted.
    options = {"strict": False} if library == "polars" else {}
    try:
        made = importlib.import_module(library)
    except ImportError:
        hint = f"a data frame needs {library}: pip install {library}"
        raise ImportError(hint) from None
    return made.DataFrame(columns, **options)


def flat(record: Any) -> dict[str, Any]:
    """Returns the fields of a record; those of nested records get dotted names."""
    fields, found = _fields(record), {}
    if fields is None:
        kind = type(record).__name__
        raise ValueError(f"records: expected dataclasses or mappings, got {kind}")
    for name, value in fields.items():
        if _fields(value) is None:
            found[str(name)] = value
        else:
            found |= {f"{name}.{part}": v for part, v in flat(value).items()}
    return found


def _fields(value: Any) -> dict[str, Any] | None:
    """Returns the fields of a record, or ``None`` for other values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = [f.name for f in dataclasses.fields(value) if f.repr]
        return {name: getattr(value, name) for name in own}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    return dict(value) if isinstance(value, Mapping) else None


def _cell(value: Any) -> Any:
    fields = _fields(value)
    if fields is not None:
        return {str(name): _cell(part) for name, part in fields.items()}
    if isinstance(value, (list, tuple)):
        return [_cell(part) for part in value]
    return value.tolist() if hasattr(value, "tolist") else value
