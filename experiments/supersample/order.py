"""Kendall's tau between a measured number and the error, with an interval."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.supersample.measure import Case

_DRAWS = 2000
# Numbers that are compared with the error, by their name in tables.
ORDERS = {
    "square-root bound": lambda case: float(case.square_root.value),
    "optimal bound": lambda case: float(case.optimal.value),
    "limit of the optimal bound": lambda case: float(case.optimal.upper),
    "norm of the weights": lambda case: case.norm,
    "condition number": lambda case: case.condition,
}


class Tau(NamedTuple):
    """Kendall's tau over models, with its interval."""

    tau: float
    low: float
    high: float
    models: int


def tau_of(x: Any, y: Any, level: float) -> Tau:
    """Computes tau-b with a percentile interval over resampled models.

    Samples of which all values of x or y are equal have no tau and are left out.
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    rng = np.random.default_rng(0)
    drawn = (rng.integers(0, len(x), len(x)) for _ in range(_DRAWS))
    found = np.array([_tau(x[rows], y[rows]) for rows in drawn])
    known = found[~np.isnan(found)]
    tails = [(1 - level) / 2, (1 + level) / 2]
    ends = np.quantile(known, tails) if known.size else (np.nan, np.nan)
    return Tau(float(_tau(x, y)), float(ends[0]), float(ends[1]), len(x))


def _tau(x: np.ndarray, y: np.ndarray) -> float:
    above = np.triu_indices(len(x), 1)
    signs = [np.sign(a[:, None] - a[None])[above] for a in _ranks(x, y)]
    untied = [np.sum(s != 0) for s in signs]
    if not min(untied):
        return float("nan")
    return float(np.sum(signs[0] * signs[1]) / np.sqrt(float(untied[0]) * untied[1]))


def _ranks(*values: np.ndarray):
    """Ranks of the values; infinity is ranked like any other value."""
    return (np.unique(value, return_inverse=True)[1] for value in values)


def orders(cases: Sequence[Case], level: float) -> dict[str, dict[str, Tau]]:
    """Tau between the error and every number that all models of a family have."""
    families: dict[str, list[Case]] = {"all learners": list(cases)}
    for case in cases:
        families.setdefault(case.family, []).append(case)
    return {
        family: {
            name: tau_of([of(c) for c in own], [c.error.mean for c in own], level)
            for name, of in ORDERS.items()
            if not any(np.isnan(of(case)) for case in own)
        }
        for family, own in families.items()
        if len(own) > 3
    }
