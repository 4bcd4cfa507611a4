"""Looks up numbers in ``experiments/results`` by path, for pages and their tests."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
_FORMAT = re.compile(r"\s:(?P<spec>[^/]*)$")


def read(name: str, file: str = "result.json") -> dict[str, Any]:
    """Reads a stored result of an experiment.

    Raises:
        ValueError: If nothing is.
    """
    path = RESULTS / name / file
    if not path.exists():
        raise ValueError(f"{path.relative_to(ROOT)}: no such stored result")
    return json.loads(path.read_text())


def lookup(text: str) -> str:
    """Returns the number at a path like ``garg_linear/curves/Transformer/mean/9 :.2f``.

    In a table, ``k=10`` takes the one row whose column ``k`` has the cell ``10``, and
    the next step its column. The format ``:+.2pp`` gives a share in percentage points.

    Raises:
        ValueError: If there is none, or several.
    """
    given = _FORMAT.search(text)
    path = text[: given.start()] if given else text
    name, *steps = path.strip().split("/")
    value: Any = read(name)
    while steps:
        # A key may contain a slash.
        found = {}
        for used in range(1, len(steps) + 1):
            with contextlib.suppress(ValueError):
                found[used] = _step(value, "/".join(steps[:used]), text)
        if not found:
            _step(value, steps[0], text)
        if len(found) > 1:
            raise ValueError(f"{text}: expected one key at {steps[0]!r}, got several")
        [(used, value)] = found.items()
        steps = steps[used:]
    if given is None:
        return str(value)
    spec, points = given["spec"].removesuffix("pp"), given["spec"].endswith("pp")
    return format(float(value) * (100 if points else 1), f"{spec}f" if points else spec)


def _step(value: Any, step: str, text: str) -> Any:
    try:
        if isinstance(value, list):
            return value[int(step)]
        if "rows" not in value or "columns" not in value or "=" not in step:
            return value[step]
    except (KeyError, IndexError, ValueError, TypeError) as error:
        known = list(value) if isinstance(value, dict) else type(value).__name__
        raise ValueError(f"{text}: no {step!r} in {known}") from error
    return _row(value, step, text)


def column(table: dict[str, Any], name: str) -> int:
    """Returns the place of the one column of a table with this head.

    Raises:
        ValueError: If there is none, or several.
    """
    columns = table["columns"]
    if columns.count(name) != 1:
        raise ValueError(
            f"expected one column {name!r}, got {columns.count(name)} in {columns}"
        )
    return columns.index(name)


def _row(table: dict[str, Any], step: str, text: str) -> dict[str, Any]:
    """Returns the one row of a table whose given column has the given cell."""
    name, _, cell = step.partition("=")
    rows = [row for row in table["rows"] if str(row[column(table, name)]) == cell]
    if len(rows) != 1:
        raise ValueError(f"{text}: expected one row with {step}, got {len(rows)}")
    return {head: rows[0][column(table, head)] for head in table["columns"]}
