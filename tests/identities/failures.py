"""What a failing identity test prints: its statement, and the numbers it compared."""

from collections.abc import Iterable, Mapping

import numpy as np

from experiments.ledger.statements import STATEMENTS, checked_by

__all__ = ["describe"]

# Arrays longer than this are not printed.
LONGEST = 8


def describe(
    node: str, measured: Iterable[tuple[str, float]], values: Mapping[str, object]
) -> str:
    """The statements that a test checks, what it recorded, and its numeric variables.

    The test is ``path::name[parameters]``; its variables are those when it failed.
    """
    names = checked_by(node)
    lines = [
        f"{said.paper}, {said.label} ({said.status}): {said.says}"
        for said in STATEMENTS
        if said.name in names
    ]
    lines += [f"measured: {name} = {value!r}" for name, value in measured]
    for name, value in values.items():
        text = _number(value)
        if text is not None and name.isidentifier():
            lines.append(f"{name} = {text}")
    return "\n".join(lines)


def _number(value: object) -> str | None:
    """A number or short array in full precision; None for anything else."""
    if isinstance(value, bool | str | bytes) or value is None or callable(value):
        return None
    try:
        array = np.asarray(value)
    except Exception:
        return None
    if array.dtype.kind not in "iufc" or array.size > LONGEST:
        return None
    return np.array2string(array, floatmode="unique")
