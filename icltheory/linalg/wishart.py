"""Exact moments of the eigenvalues of a Gaussian sample covariance."""

import functools
import math
from fractions import Fraction

import jax.numpy as jnp

from icltheory._checks import check_integer, check_positive_int
from icltheory._core import calculator
from icltheory._typing import Array, Float


@calculator(compiled=False, static=("dim", "num_examples", "order"))
def wishart_moments(
    dim: int, num_examples: int, order: int
) -> Float[Array, "order_plus_1"]:
    r"""Mean moments of the eigenvalues of S = X'X / N with Gaussian rows of X.

    .. math::
        m_k = \frac1d E \operatorname{tr} S^k
        = \frac{2k}{d N^k} \sum_{\lambda \vdash k} \prod_{(i, j) \in \lambda}
          \frac{c(i, j)'\, (d + c(i, j))\, (N + c(i, j))}{h(i, j)\, (h(i, j) + 1)} ,
        \qquad c(i, j) = 2 (j - 1) - (i - 1) ,

    over partitions of k, where :math:`c'` is c, and 1 at the box (1, 1), and
    :math:`h = 2\,\mathrm{arm} + \mathrm{leg} + 1`. It is the expansion of the power
    sum in zonal polynomials, whose mean is known. The box (3, 2) has c = 0, so that
    only the partitions (a, b, 1, ..., 1) count. Rational arithmetic throughout; about
    :math:`k^2 / 4` terms for the moment of order k. Returns :math:`m_0, \dots, m_K` for
    K = ``order``, each rounded once.

    Example:
        >>> [f"{moment:.4f}" for moment in wishart_moments(5, 20, 4)]
        ['1.0000', '1.0000', '1.3000', '2.0100', '3.4900']

    Source: Hanlon, Stanley and Stembridge (1992); Macdonald (1995), VI.10 and VII.2.
    """
    check_integer("order", order, 0)
    return jnp.asarray([_rounded(m) for m in exact_moments(dim, num_examples, order)])


def _rounded(moment: Fraction) -> float:
    """Converts a fraction to float64; infinite beyond its range."""
    try:
        return float(moment)
    except OverflowError:
        return math.inf


@functools.lru_cache(maxsize=64)
def exact_moments(dim: int, num_examples: int, order: int) -> tuple[Fraction, ...]:
    """Returns the moments as exact fractions."""
    check_positive_int("dim", dim)
    check_positive_int("num_examples", num_examples)
    return (Fraction(1),) + tuple(
        Fraction(2 * k, dim * num_examples**k) * _partition_sum(dim, num_examples, k)
        for k in range(1, order + 1)
    )


def _partition_sum(d: int, N: int, k: int) -> Fraction:
    """Sum over partitions (a, b, 1^c) of k; those with more than d rows are 0."""
    total = _term(d, N, k, 0, 0)
    for b in range(1, k // 2 + 1):
        for c in range(min(k - 2 * b, d - 2) + 1):
            total += _term(d, N, k - b - c, b, c)
    return total


def _term(d: int, N: int, a: int, b: int, c: int) -> Fraction:
    """Term of a partition (a, b, 1^c): the product over its boxes."""
    rows = (a, b, *(1,) * c) if b else (a,)
    above, below = 1, 1
    for i, row in enumerate(rows):
        contents = range(-i, 2 * row - i, 2)
        above *= math.prod(contents[1:] if i == 0 else contents)
        above *= math.prod(range(d - i, d - i + 2 * row, 2))
        above *= math.prod(range(N - i, N - i + 2 * row, 2))
        first_leg, second = len(rows) - i - 1, (b if i == 0 else 0)
        # Boxes of the first column have its leg, boxes above the second row have leg 1,
        # others 0.
        below *= _hooks(row, 0, 1, first_leg)
        below *= _hooks(row, 1, max(second, 1), 1) * _hooks(row, max(second, 1), row, 0)
    return Fraction(above, below)


def _hooks(row: int, start: int, stop: int, leg: int) -> int:
    """Product of h (h + 1) over boxes of a row with equal leg length."""
    hooks = range(2 * (row - stop) + leg + 1, 2 * (row - start) + leg - 1 + 1, 2)
    return math.prod(hooks) * math.prod(h + 1 for h in hooks)
