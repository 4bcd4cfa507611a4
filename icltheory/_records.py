"""Text form and equality of records."""

import dataclasses
from typing import Any

import jax
import numpy as np

_SHOWN = 6  # entries of an array that a repr shows


def show(record: Any) -> str:
    """Formats a record as one short line, with large arrays by type and shape."""
    fields = (field for field in dataclasses.fields(record) if field.repr)
    parts = (f"{field.name}={_one(getattr(record, field.name))}" for field in fields)
    return f"{type(record).__name__}({', '.join(parts)})"


def _one(value):
    if isinstance(value, jax.core.Tracer) or not hasattr(value, "dtype"):
        return repr(value)
    shape = np.shape(value)
    if np.issubdtype(np.dtype(object), value.dtype) or np.prod(shape) > _SHOWN:
        return f"{value.dtype}{list(shape)}"
    try:
        text = np.array2string(np.asarray(value), precision=4, separator=", ")
    except (TypeError, RuntimeError):  # keys, and arrays on other hosts
        return f"{value.dtype}{list(shape)}"
    return text.replace("\n", "")


def equal(record: Any, other: Any) -> Any:
    """Whether two records of one class have equal fields; NaN equals NaN."""
    if type(record) is not type(other):
        return NotImplemented
    return all(
        _same(getattr(record, field.name), getattr(other, field.name))
        for field in dataclasses.fields(record)
        if field.compare
    )


def _same(a, b):
    leaves, tree = jax.tree.flatten(a)
    others, structure = jax.tree.flatten(b)
    return tree == structure and all(
        _same_leaf(x, y) for x, y in zip(leaves, others, strict=True)
    )


def _same_leaf(x, y):
    if x is y:
        return True
    x, y = np.asarray(x), np.asarray(y)
    nan = x.dtype.kind == "f" and y.dtype.kind == "f"
    return bool(np.array_equal(x, y, equal_nan=nan))
