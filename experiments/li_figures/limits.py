"""Relations that the published numbers must satisfy in any training setting.

The derivations are in ``docs/reference/derivations/published_patterns.md``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.stats import binom

__all__ = [
    "balanced_size",
    "least_attention_scale",
    "least_factor",
    "nearest_neighbour_error",
    "pruned_error_bound",
    "pruning_needs",
]


def balanced_size(feature: Any, label: Any, count: Any, excess: float) -> Any:
    """Norm of a row of W_O that follows from the norms of its parts in W_O W_V.

    A part of norm b in W_O W_V belongs to a part w of the row of W_O with
    b^2 = w^2 (n w^2 + e), as W_V W_V' - W_O' W_O does not change in training.

    Args:
        feature: Norm of the feature part of W_O W_V.
        label: Norm of its label part.
        count: Number n of large neurons.
        excess: e, that difference at the start: delta^2 - m xi^2.

    Returns:
        The norm, without what the row had at the start.
    """
    squares = (
        (np.sqrt(excess**2 + 4 * count * np.square(b)) - excess) / (2 * count)
        for b in (feature, label)
    )
    return np.sqrt(sum(squares))


def least_attention_scale(turn: float, label: float, size: float) -> float:
    """Least delta for a label part at an angle to q: b sin(angle) / |w|.

    Args:
        turn: The angle over pi.
        label: Norm b of the label part of the row of W_O W_V.
        size: Norm of the row w of W_O.

    Returns:
        delta.
    """
    return float(np.sin(np.pi * turn) * label / size)


def pruned_error_bound(mass: float, shift: float) -> float:
    """Largest 0-1 error after pruning: 2 (1 - mass) / (1 - c S_1), for c S_1 < 1.

    Args:
        mass: Mean attention on contexts of the query's pattern.
        shift: c S_1.

    Returns:
        The bound, at most 1.
    """
    return min(1.0, 2 * (1 - mass) / (1 - shift)) if shift < 1 else 1.0


def pruning_needs(error: float, mass: float) -> float:
    """Least c S_1 at which pruning can raise the 0-1 error to a given value."""
    return 1 - 2 * (1 - mass) / error


def nearest_neighbour_error(fraction: Any, num_examples: Any) -> Any:
    """Error of the nearest context: (1 - alpha' / 2)^n / (2 - alpha'), for n >= 1.

    Args:
        fraction: alpha'.
        num_examples: n.

    Returns:
        The probability. No model that answers with the sign of weighted labels errs
        less.
    """
    return (1 - fraction / 2) ** num_examples / (2 - fraction)


def least_factor(
    curves: Mapping[float, Sequence[float]],
    lengths: Sequence[int],
    *,
    falling: bool = True,
) -> float:
    """Least factor within which an error that depends on votes alone fits the curves.

    With l examples of which each votes with probability alpha', the error is the mean
    of g(n) over a binomial n. Found is the least f for which some g has all errors
    between published / f and published f, by bisection over linear programs.

    Args:
        curves: Errors by alpha'.
        lengths: Their prompt lengths.
        falling: Whether g must not rise with n.

    Returns:
        f, to 1e-4.
    """
    counts = np.arange(max(lengths) + 1)
    pairs = [(a, l) for a in curves for l in lengths]
    mixing = np.array([binom.pmf(counts, l, a) for a, l in pairs])
    errors = np.concatenate([np.asarray(curve, float) for curve in curves.values()])
    rise = np.diff(np.eye(len(counts)), axis=0)
    rows = [mixing, -mixing, *([rise] if falling else [])]

    def possible(factor: float) -> bool:
        ends = [errors * factor, -errors / factor]
        limit = np.concatenate([*ends, *([np.zeros(len(rise))] if falling else [])])
        cost = np.zeros(len(counts))
        found = linprog(cost, np.vstack(rows), limit, bounds=(0, 1), method="highs")
        return found.status == 0

    low, high = 1.0, 16.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if possible(middle) else (middle, high)
    return high
