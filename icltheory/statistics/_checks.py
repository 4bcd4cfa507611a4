"""Checks that the statistics share."""

from typing import Any

import numpy as np


def booleans(name: str, values: Any, ndim: int = 1) -> np.ndarray:
    """A boolean array with at least one example along its last axis."""
    array = np.asarray(values)
    if array.dtype != bool or array.ndim != ndim or not array.size:
        raise ValueError(
            f"{name}: expected booleans in {ndim} dimension(s), at least one, "
            f"got {array.dtype} of shape {array.shape}"
        )
    return array


def same_shape(name: str, array: np.ndarray, other: str, wanted: tuple) -> None:
    """Raises unless the shapes of two arrays agree."""
    if array.shape != wanted:
        raise ValueError(
            f"{name}: expected the shape of {other}, {wanted}, got {array.shape}"
        )
