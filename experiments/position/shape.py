"""Tests whether the curve over positions is U-shaped, by two paired contrasts."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from icltheory.statistics import Estimate, adjust_holm

# Signs of (first - middle, last - middle) for the influence of the special example.
WORDS = {
    (1, 1): "U",
    (-1, -1): "inverted U",
    (-1, 1): "recency",
    (-1, 0): "recency",
    (0, 1): "recency",
    (1, -1): "primacy",
    (1, 0): "primacy",
    (0, -1): "primacy",
    (0, 0): "no effect found",
}
# A contrast below this share of a prompt's error is rounding: the order has no effect.
_ROUNDING = 1e-5


class Shape(NamedTuple):
    """Influence of the special example by position, with its two contrasts.

    Attributes:
        by_place: Mean error at every place.
        first: Influence in the first third minus that in the middle, paired by prompt.
        last: Influence in the last third minus that in the middle.
        p_values: Of these two, after Holm's correction over all curves.
        word: ``"U"``, ``"recency"``, ``"primacy"``, ...
    """

    by_place: Estimate
    first: Estimate
    last: Estimate
    p_values: tuple[float, float]
    word: str


Errors = Mapping[tuple[str, str], np.ndarray]


def shapes(errors: Errors, level: float) -> dict[tuple[str, str], Shape]:
    """Tests the shape of every curve with Holm's correction over all of them."""
    contrasts = {case: _contrasts(case[1], e) for case, e in errors.items()}
    p = adjust_holm([[c.p_value() for c in pair] for pair in contrasts.values()])
    found = {}
    for (case, (first, last)), own in zip(contrasts.items(), p, strict=True):
        signs = _sign(first, own[0], level), _sign(last, own[1], level)
        by_place, p_values = Estimate.of(errors[case]), (float(own[0]), float(own[1]))
        found[case] = Shape(by_place, first, last, p_values, WORDS[signs])
    return found


def _sign(contrast: Estimate, p_value: float, level: float) -> int:
    return int(np.sign(contrast.mean)) if p_value <= 1 - level else 0


def _contrasts(special: str, errors: np.ndarray) -> tuple[Estimate, Estimate]:
    """Contrasts of the first and last third with the middle, for the influence."""
    influence = -errors if special == "relevant" else errors
    third = errors.shape[1] // 3
    middle = influence[:, third:-third].mean(axis=1)
    ends = influence[:, :third], influence[:, -third:]
    differences = [end.mean(axis=1) - middle for end in ends]
    rounding = _ROUNDING * np.abs(errors).max(axis=1)
    first, last = (
        Estimate.of(np.where(np.abs(each) <= rounding, 0.0, each))
        for each in differences
    )
    return first, last
