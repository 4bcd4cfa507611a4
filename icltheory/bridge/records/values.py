"""Digests, lines and versions in files of records."""

import functools
import hashlib
import json
from importlib import metadata
from typing import Any

from icltheory.strict_json import plain

__all__ = ["config_hash"]

_VERSIONED = ("icltheory", "jax", "jaxlib", "flax", "numpy", "scipy", "tokenizers")


def config_hash(config: Any) -> str:
    """Digest of a configuration, the same in every process and for every key order.

    Args:
        config: A JSON value, or a dataclass of such.

    Returns:
        The SHA-256 of its canonical JSON, in hexadecimal.

    Example:
        >>> config_hash({"a": 1, "b": 2}) == config_hash({"b": 2, "a": 1})
        True
    """
    text = json.dumps(plain(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def to_line(value: dict[str, Any]) -> bytes:
    """Formats one line of a file."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.encode() + b"\n"


@functools.cache
def versions() -> dict[str, str]:
    """Returns the versions of installed packages that results may depend on."""
    found = {}
    for name in _VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def first_difference(wanted: Any, got: Any, path: str = "config") -> str:
    """Describes the first difference of two configurations."""
    if not (isinstance(wanted, dict) and isinstance(got, dict)):
        return f"{path} is {got!r}, not {wanted!r}"
    for name in sorted(set(wanted) | set(got)):
        inner = f"{path}.{name}"
        if name not in got or name not in wanted:
            return f"{inner} is {'absent' if name in wanted else 'there'}"
        if wanted[name] != got[name]:
            return first_difference(wanted[name], got[name], inner)
    return f"{path} is the same"
