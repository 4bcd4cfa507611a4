"""Intervals of shares and of means over seeds."""

import math

import numpy as np

from icltheory.bridge.statistics import accuracy_interval


def share_intervals(
    shares: np.ndarray, total: int, level: float = 0.95, exact: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Binomial intervals of shares of ``total`` prompts: Wilson's, or exact ones."""
    method = "clopper_pearson" if exact else "wilson"
    ends = [
        accuracy_interval(round(share * total), total, level=level, method=method)
        for share in np.ravel(shares).tolist()
    ]
    shape = np.shape(shares)
    low = np.array([end.low for end in ends]).reshape(shape)
    return low, np.array([end.high for end in ends]).reshape(shape)


def over_axis(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Means over an axis and their standard errors; NaN for a single entry."""
    values = np.asarray(values, np.float64)
    n = values.shape[axis]
    if n < 2:
        return values.mean(axis=axis), np.full(values.mean(axis=axis).shape, np.nan)
    return values.mean(axis=axis), values.std(axis=axis, ddof=1) / math.sqrt(n)
