"""Strength of pruning: a rate, which determines a rank exactly, or a rank."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from icltheory._checks import (
    check_choice,
    check_nonnegative_int,
    check_positive_int,
    check_sequence,
    is_tracer,
)
from icltheory._typing import Rule

RULES = ("floor", "nearest", "ceil")
_RATE = "rate: expected a number"
_GUARD = Fraction(1, 10**9)
# Rounding of float32, which prints computed numbers with 6 or more decimal places and
# at most 9 digits.
_SINGLE = Fraction(2, 10**7)


@dataclass(frozen=True)
class Rank:
    r"""A rank r >= 1, in lists of strengths that also contain rates.

    A matrix becomes its best approximation of rank at most r, so that one with
    :math:`\min(m, n) \le r` stays as it is.

    Example:
        >>> str(Rank(8))
        'rank=8'

    Source: Eckart and Young (1936).
    """

    value: int

    def __post_init__(self):
        check_positive_int("rank", self.value)
        object.__setattr__(self, "value", int(self.value))

    def __str__(self) -> str:
        return f"rank={self.value}"


def rank_for_rate(
    shape: tuple[int, ...],
    rate: Any,
    rule: Rule = "floor",
    *,
    at_least_one: bool = False,
) -> int:
    r"""Rank of an (m, n) matrix that a clipping rate xi in [0, 1) keeps.

    .. math::
        r = \lfloor (1 - \xi)\, k + 10^{-9} k \rfloor , \qquad k = \min(m, n)

    for ``"floor"``; ``"nearest"`` is :math:`\lfloor (1 - \xi) k + 1/2 + 10^{-9} k
    \rfloor` and ``"ceil"`` :math:`\lceil (1 - \xi) k - 10^{-9} k \rceil`. The rate is
    read as the decimal number that it prints as in its own dtype, and all else is
    exact: a product of floats gives 9, not 10, for a rate of 0.99 of 1000. The guard
    takes rates that were themselves computed, such as ``1 - 3 / 7``, to the integer
    they stand for. It is :math:`2 \cdot 10^{-7}` for a rate of at least 6 decimal
    places and at most 9 digits, as float32 prints it: ``float32(2 / 3)`` keeps 1 of 3.

    A rank that rounds to 0 is an error, or 1 with ``at_least_one``.

    Example:
        >>> [rank_for_rate((4096, 4096), xi) for xi in (0, 0.1, 0.9, 0.99, 0.995)]
        [4096, 3686, 409, 40, 20]
        >>> rank_for_rate((64, 256), 0.99, at_least_one=True)
        1

    Source: Yao et al. (2024), sections 2 and C.2.
    """
    size = min(matrix_shape(shape))
    rank = kept_of(size, rate, rule)
    if rank == 0 and not at_least_one:
        raise ValueError(
            f"rate: expected a rate that leaves a rank >= 1 of {size}, got {rate}"
        )
    return max(rank, 1)


def kept_parameters(shape: tuple[int, ...], rank: int) -> int:
    r"""Number of parameters at rank r: min{r (m + n), m n}, of two thin factors or all.

    The factors save nothing above :math:`r = m n / (m + n)`, half of the full rank for
    a square matrix. Magnitude pruning at rate :math:`\xi` keeps
    :math:`(1 - \xi)\, m n` entries and has to store where they stand as well.

    Example:
        >>> kept_parameters((100, 100), 10), kept_parameters((100, 100), 90)
        (2000, 10000)

    Source: Yao et al. (2024), section 2.
    """
    m, n = matrix_shape(shape)
    check_nonnegative_int("rank", rank)
    if rank > min(m, n):
        raise ValueError(f"rank: expected 0 <= rank <= {min(m, n)}, got {rank}")
    return min(rank * (m + n), m * n)


def matrix_shape(shape: Any) -> tuple[int, ...]:
    """Returns a shape (m, n); raises for others."""
    if not isinstance(shape, (tuple, list)) or len(shape) != 2:
        raise ValueError(f"shape: expected (m, n), got {shape}")
    for size in shape:
        check_positive_int("shape", size)
    return tuple(shape)


def kept_of(size: int, rate: Any, rule: str) -> int:
    """Number of ``size`` items that a rate keeps, possibly 0."""
    check_choice("rule", rule, RULES)
    exact = _decimal(rate, _RATE)
    places = f"{Decimal(repr(float(exact))):f}".partition(".")[2]
    single = len(places) >= 6 and len(places.lstrip("0")) <= 9
    guard = min((_SINGLE if single else _GUARD) * size, Fraction(1, 2))
    kept = (1 - exact) * size
    if rule == "ceil":
        return math.ceil(kept - guard)
    half = Fraction(1, 2) if rule == "nearest" else 0
    return min(math.floor(kept + half + guard), size)


def read_rate(rate: Any, expected: str = _RATE) -> float:
    """Returns a rate in [0, 1) as the decimal number it prints as in its own dtype."""
    return float(_decimal(rate, expected))


def _decimal(rate, expected) -> Fraction:
    if is_tracer(rate):
        raise ValueError("rate: expected a concrete number, got a traced one")
    try:
        value = np.asarray(rate)[()]
        number = np.ndim(value) == 0 and not isinstance(value, str)
        exact = Fraction(str(value)) if number else None
    except ValueError:  # NaN, infinity, or not a number
        exact = None
    if exact is None or not 0 <= exact < 1:
        got = repr(rate) if isinstance(rate, str) else rate
        raise ValueError(f"{expected} in [0, 1), got {got}")
    return exact


def as_strength(value: Any, expected: str = _RATE) -> float | Rank:
    """Converts a rate to a Python float; a rank stays unchanged."""
    return value if isinstance(value, Rank) else read_rate(value, expected)


def as_strengths(strengths: Any, name: str = "rates") -> tuple[float | Rank, ...]:
    """Returns several strengths, rates as Python floats."""
    check_sequence(name, strengths)
    if not len(strengths):
        raise ValueError(f"{name}: expected at least one, got none")
    return tuple(as_strength(s, f"{name}: expected numbers") for s in strengths)


def check_ranks(shapes: Sequence[tuple[int, ...]], strengths: Sequence[Any]) -> None:
    """Raises if a rank exceeds that of every matrix and so would change none."""
    most = max(map(min, shapes))
    for one in strengths:
        if isinstance(one, Rank) and one.value > most:
            raise ValueError(f"rank: expected 1 <= rank <= {most}, got {one.value}")
