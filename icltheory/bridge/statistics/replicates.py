"""Several results at once: Holm's correction, and the mean over demonstration seeds."""

from typing import Any, NamedTuple

import numpy as np

from icltheory.bridge.statistics._checks import check_open_unit

__all__ = ["Replicates", "adjust_holm", "holm", "summarise_replicates"]


def holm(p: Any, alpha: float | int) -> np.ndarray:
    r"""Which hypotheses Holm's step-down procedure rejects at family-wise level alpha.

    .. math:: p_{(i)} \le \alpha / (m - i + 1) \text{ for all } i \le k

    Args:
        p: The p-values, in any shape; all of them are one family.
        alpha: Family-wise level.

    Returns:
        Booleans in the same shape, true where rejected.

    Raises:
        ValueError: If a p-value is outside [0, 1] or NaN, or alpha is not between 0
            and 1.

    Example:
        >>> holm([0.01, 0.04, 0.03], 0.05).tolist()
        [True, False, False]

    References:
        Holm (1979). Verified by ``tests/bridge/test_statistics.py``.
    """
    check_open_unit("alpha", alpha)
    flat = _p_values(p).ravel()
    order = np.argsort(flat, kind="stable")
    bars = alpha / (len(flat) - np.arange(len(flat)))
    passed = np.logical_and.accumulate(flat[order] <= bars)
    rejected = np.zeros(len(flat), bool)
    rejected[order] = passed
    return rejected.reshape(np.shape(p))


def adjust_holm(p: Any) -> np.ndarray:
    r"""Holm's adjusted p-values: the least level at which each is rejected.

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min\{1, (m - j + 1)\, p_{(j)}\}

    Args:
        p: The p-values, in any shape; all of them are one family.

    Returns:
        The adjusted ones in the same shape.

    Raises:
        ValueError: If a p-value is outside [0, 1] or NaN.

    Example:
        >>> adjust_holm([0.01, 0.04, 0.03]).round(3).tolist()
        [0.03, 0.06, 0.06]

    References:
        Holm (1979). Verified by ``tests/bridge/test_statistics.py``.
    """
    flat = _p_values(p).ravel()
    order = np.argsort(flat, kind="stable")
    weighted = np.minimum(1.0, (len(flat) - np.arange(len(flat))) * flat[order])
    adjusted = np.empty(len(flat))
    adjusted[order] = np.maximum.accumulate(weighted)
    return adjusted.reshape(np.shape(p))


class Replicates(NamedTuple):
    """Mean over replicates with its standard error.

    Args:
        mean: The mean.
        standard_error: Its standard error; NaN where there is one replicate only.
        num: How many replicates there are.

    References:
        Verified by ``tests/bridge/test_statistics.py``.
    """

    mean: np.ndarray
    standard_error: np.ndarray
    num: int


def summarise_replicates(values: Any) -> Replicates:
    r"""Mean and standard error over demonstration seeds or orders, along axis 0.

    .. math:: \bar a , \qquad
        \Big( \tfrac{1}{k (k - 1)} \sum_{i=1}^k (a_i - \bar a)^2 \Big)^{1/2}

    It measures the choice of demonstrations. When all replicates are scored on the same
    examples, the error from having only these examples comes on top of it.

    Args:
        values: Results, one replicate a row.

    Returns:
        Mean, standard error and number of replicates.

    Raises:
        ValueError: If there is no replicate.

    Example:
        >>> found = summarise_replicates([0.5, 0.7, 0.6])
        >>> f"{found.mean:.3f} +- {found.standard_error:.3f}"
        '0.600 +- 0.058'

    References:
        Verified by ``tests/bridge/test_statistics.py``.
    """
    rows = np.asarray(values, np.float64)
    if not rows.size or rows.ndim == 0:
        raise ValueError(f"values: expected at least one, got shape {rows.shape}")
    num = len(rows)
    if num == 1:
        return Replicates(rows[0], np.full_like(rows[0], np.nan), 1)
    error = np.std(rows, axis=0, ddof=1) / np.sqrt(num)
    return Replicates(np.mean(rows, axis=0), error, num)


def _p_values(p: Any) -> np.ndarray:
    values = np.asarray(p, np.float64)
    outside = values[~((values >= 0) & (values <= 1))]
    if outside.size:
        raise ValueError(f"p: expected numbers in [0, 1], got {outside[0]}")
    return values
