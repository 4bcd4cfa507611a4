"""Values to JSON and back, so that every JSON reader can read the files."""

import dataclasses
import functools
import hashlib
import json
import math
from importlib import metadata
from typing import Any

import numpy as np

__all__ = ["config_hash"]

_VERSIONED = ("icltheory", "jax", "jaxlib", "flax", "numpy", "scipy", "tokenizers")
_NOT_FINITE = {"Infinity": math.inf, "-Infinity": -math.inf}


def config_hash(config: Any) -> str:
    """Digest of a configuration, the same in every process and for every key order.

    Args:
        config: A JSON value, or a dataclass of such.

    Returns:
        The SHA-256 of its canonical JSON, in hexadecimal.

    Raises:
        ValueError: If JSON cannot hold it.

    Example:
        >>> config_hash({"a": 1, "b": 2}) == config_hash({"b": 2, "a": 1})
        True

    References:
        Verified by ``tests/bridge/test_records.py``.
    """
    text = json.dumps(plain(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def plain(value: Any) -> Any:
    """The JSON value of arrays, scalars and dataclasses; NaN becomes ``None``."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if hasattr(value, "tolist"):  # Arrays and scalars of NumPy and JAX
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value)
    if value is not None and not isinstance(value, (str, int, float)):
        raise ValueError(f"value: expected what JSON can hold, got {type(value)}")
    return value


def number(value: Any) -> Any:
    """A number or list of numbers, out of its JSON value."""
    if isinstance(value, list):
        return [number(part) for part in value]
    if isinstance(value, str):
        if value not in _NOT_FINITE:
            raise ValueError(f"value: expected a number, got {value!r}")
        return _NOT_FINITE[value]
    return np.nan if value is None else value


def to_line(value: dict[str, Any]) -> bytes:
    """One line of a file."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.encode() + b"\n"


@functools.cache
def versions() -> dict[str, str]:
    """Versions of what the numbers may depend on; what is absent is left out."""
    found = {}
    for name in _VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def first_difference(wanted: Any, got: Any, path: str = "config") -> str:
    """Where two configurations differ first."""
    if not (isinstance(wanted, dict) and isinstance(got, dict)):
        return f"{path} is {got!r}, not {wanted!r}"
    for name in sorted(set(wanted) | set(got)):
        inner = f"{path}.{name}"
        if name not in got or name not in wanted:
            return f"{inner} is {'absent' if name in wanted else 'there'}"
        if wanted[name] != got[name]:
            return first_difference(wanted[name], got[name], inner)
    return f"{path} is the same"
