"""Tokens that a model has no row for; they would silently be taken for its last one."""

from collections.abc import Sequence

import numpy as np


def check_vocabulary(name: str, rows: Sequence[np.ndarray], size: int) -> None:
    """Raises if a token of a row is not one of ``size`` entries."""
    for number, row in enumerate(rows):
        if row.min() < 0 or row.max() >= size:
            wrong = row.min() if row.min() < 0 else row.max()
            raise ValueError(
                f"{name}: expected tokens 0 to {size - 1}, got {wrong} in row {number}"
            )
