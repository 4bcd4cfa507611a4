"""Finds which count and denominator reproduce a printed score."""

import math
from fractions import Fraction
from typing import Any, NamedTuple

from icltheory._checks import check_nonnegative_int, check_positive_int

__all__ = ["Denominator", "denominator_of"]


class Denominator(NamedTuple):
    """Counts and denominators that reproduce a printed score.

    Args:
        over_n: Counts k for which k / n prints so.
        over_n_minus_1: Counts k for which k / (n - 1) prints so.
    """

    over_n: tuple[int, ...]
    over_n_minus_1: tuple[int, ...]

    @property
    def verdict(self) -> str:
        """Denominator that fits: ``"n"``, ``"n-1"``, ``"both"`` or ``"neither"``."""
        if self.over_n:
            return "both" if self.over_n_minus_1 else "n"
        return "n-1" if self.over_n_minus_1 else "neither"


def denominator_of(score: Any, n: int, digits: int) -> Denominator:
    r"""Finds whether a printed score is a count over n or over n - 1.

    .. math::
        -\tfrac12 10^{-d} \le \frac{k}{m} - s < 10^{-d} , \qquad m \in \{ n, n - 1 \}

    which takes in both rounding and cutting off after d digits. Published tables do
    both. All arithmetic is exact. If many examples meet few digits, both fit.

    Args:
        score: The printed score s, in [0, 1].
        n: Number of examples, at least 2.
        digits: Number d of digits behind the point that were printed.

    Returns:
        The counts for either denominator, and the verdict.

    Example:
        >>> denominator_of(0.56884, 277, 5)
        Denominator(over_n=(), over_n_minus_1=(157,))
        >>> denominator_of(0.76434, 7600, 5).verdict
        'n'

    Source: Yao et al. (2024), Tables 2 to 8.
    """
    check_positive_int("n", n)
    check_nonnegative_int("digits", digits)
    if n < 2:
        raise ValueError(f"n: expected at least 2 examples, got {n}")
    try:
        exact = Fraction(str(score))
    except ValueError:
        raise ValueError(f"score: expected a finite number, got {score}") from None
    unit = Fraction(1, 10**digits)
    if not 0 <= exact <= 1:
        raise ValueError(f"score: expected a number in [0, 1], got {score}")
    if (exact / unit).denominator != 1:
        raise ValueError(f"score: expected at most {digits} digits, got {score}")
    return Denominator(_counts(exact, n, unit), _counts(exact, n - 1, unit))


def _counts(score: Fraction, total: int, unit: Fraction) -> tuple[int, ...]:
    lowest = max(0, math.ceil((score - unit / 2) * total))
    highest = min(total, math.ceil((score + unit) * total) - 1)
    return tuple(range(lowest, highest + 1))
