"""Multiple testing: Holm's correction."""

from typing import Any

import numpy as np

from icltheory._checks import as_decimals

__all__ = ["adjust_holm"]


def adjust_holm(p: Any) -> np.ndarray:
    r"""Holm's adjusted p-values: the smallest level at which each test rejects.

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min\{1, (m - j + 1)\, p_{(j)}\}

    Args:
        p: The p-values, in any shape; all of them are one family.

    Returns:
        The adjusted ones in the same shape.

    Example:
        >>> adjust_holm([0.01, 0.04, 0.03]).round(3).tolist()
        [0.03, 0.06, 0.06]

    Source: Holm (1979).
    """
    flat = np.ravel(as_decimals("p", p))
    outside = flat[~((flat >= 0) & (flat <= 1))]
    if outside.size:
        raise ValueError(f"p: expected numbers in [0, 1], got {outside[0]}")
    order = np.argsort(flat, kind="stable")
    weighted = np.minimum(1.0, (len(flat) - np.arange(len(flat))) * flat[order])
    adjusted = np.empty(len(flat))
    adjusted[order] = np.maximum.accumulate(weighted)
    return adjusted.reshape(np.shape(p))
