"""Converts rows of tokens to arrays; raises for tokens outside of the vocabulary."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def read_rows(name: str, rows: Sequence[Any], size: int) -> list[np.ndarray]:
    """Converts each row to an array of integers below ``size``; raises for others."""
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
