"""Rows of tokens as arrays; what a model has no row for is refused, never clamped."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def read_rows(name: str, rows: Sequence[Any], size: int) -> list[np.ndarray]:
    """Each row as an array of whole numbers below ``size``; raises for all others."""
    read = []
    for number, row in enumerate(rows):
        array = np.asarray(row)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            got = f"{array.dtype} of shape {array.shape}"
            raise ValueError(
                f"{name}: expected a sequence of whole numbers, got {got} in row "
                f"{number}"
            )
        if array.size and not 0 <= array.min() <= array.max() < size:
            wrong = array.min() if array.min() < 0 else array.max()
            raise ValueError(
                f"{name}: expected tokens 0 to {size - 1}, got {wrong} in row {number}"
            )
        read.append(array.astype(np.int32))
    return read
