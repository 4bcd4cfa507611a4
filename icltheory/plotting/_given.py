"""Checks and converts the arguments of figures."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icltheory.plotting.style import STYLE

__all__ = ["axes_for", "new_axes", "numbers", "require_mapping"]


def numbers(name: str, values: Any, *axes: str) -> np.ndarray:
    """Converts real numbers to an array; raises unless it has the given axes.

    Args:
        name: Name of the argument, for the error.
        values: The numbers; NaN is allowed.
        *axes: What each axis counts.

    Returns:
        The numbers, in float64.
    """
    expected = f"{name}: expected real numbers ({', '.join(axes)})"
    try:
        array = np.asarray(values)
        if array.dtype.kind in "cSU":
            raise TypeError
        array = array.astype(float)
    except (TypeError, ValueError):
        raise TypeError(f"{expected}, got {_described(values)}") from None
    if array.ndim != len(axes) or not array.size:
        raise ValueError(f"{expected}, got shape {array.shape}")
    return array


def require_mapping(name: str, given: Any, values: str) -> None:
    """Raises for an empty mapping or a value that is not a mapping from names."""
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{name}: expected a mapping from names to {values}, got "
            f"{type(given).__name__}"
        )
    if not given:
        raise ValueError(f"{name}: expected at least one, got none")


def axes_for(axes: Any, count: int) -> Sequence[Any]:
    """Returns the given axes of some panels, in order."""
    found = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    if len(found) != count:
        raise ValueError(
            f"axes: expected {count}, one for each panel, got {len(found)}"
        )
    for one in found:
        _check_axes("axes", one)
    return list(found)


def _check_axes(name: str, ax: Any) -> None:
    if not hasattr(ax, "plot"):
        raise TypeError(f"{name}: expected axes of Matplotlib, got {ax!r:.60}")


def new_axes(ax: Any) -> Any:
    """Returns the given axes, or those of a new figure in the common style."""
    if ax is not None:
        _check_axes("ax", ax)
        return ax
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        return plt.subplots(figsize=(5.5, 3.8))[1]


def _described(values: Any) -> str:
    if isinstance(values, list | tuple):
        return f"a {type(values).__name__} of {len(values)} that is no such table"
    dtype = getattr(values, "dtype", None)
    return type(values).__name__ if dtype is None else f"dtype {dtype}"
