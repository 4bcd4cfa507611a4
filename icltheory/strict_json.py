"""Strict JSON: infinities are written as words, and NaN as null.

Stability: stable.
"""

import dataclasses
import math
from typing import Any

__all__ = ["number", "plain"]

_NOT_FINITE = {"Infinity": math.inf, "-Infinity": -math.inf}


def plain(value: Any) -> Any:
    """Converts arrays, scalars, dataclasses and containers to JSON values.

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
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value)
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
        if value not in _NOT_FINITE:
            raise ValueError(f"value: expected a number, got {value!r}")
        return _NOT_FINITE[value]
    return math.nan if value is None else value
