"""Spectra of random matrices: densities, exact moments, orthogonal polynomials."""

import decimal
import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from icltheory._checks import check_integer, check_positive_int, positive
from icltheory._core import calculator
from icltheory._typing import Array, Float


@calculator(static=("shape",), std=positive)
def marchenko_pastur_density(
    s: Float[ArrayLike, "*points"],
    shape: tuple[int, int],
    std: Float[ArrayLike, ""] = 1.0,
) -> Float[Array, "*points"]:
    r"""Density of the singular values of a large matrix with independent entries.

    .. math:: f(s) = \frac{\sqrt{(s^2 - a^2)(b^2 - s^2)}}{\pi \sigma^2 k s},
        \qquad a, b = \sigma (\sqrt{\max(m, n)} \mp \sqrt k), \quad k = \min(m, n)

    between a and b, and 0 elsewhere: the limit of Marchenko and Pastur as m and n grow
    in proportion, for entries of mean 0 and standard deviation :math:`\sigma`. It
    integrates to 1, and is NaN where s is NaN. A value of a trained matrix above b is
    no effect of chance.

    Example:
        >>> import numpy as np
        >>> marchenko_pastur_density(np.array([1.0, 3.0]), (4, 1)).round(3).tolist()
        [0.0, 0.0]
        >>> float(marchenko_pastur_density(1.0, (1, 1)).round(4))  # a quarter circle
        0.5513

    Source: Marchenko and Pastur (1967).
    """
    whole = all(isinstance(size, int | np.integer) and size >= 1 for size in shape)
    if len(shape) != 2 or not whole:
        raise ValueError(f"shape: expected two positive integers, got {shape}")
    k, long, short = min(shape), math.sqrt(max(shape)), math.sqrt(min(shape))
    low, high = std * (long - short), std * (long + short)
    s = jnp.asarray(s, float)
    # For a square matrix low is 0, where the density is positive.
    inside = (s >= low) & (s < high)
    below = 1 - (low / jnp.where(inside, s, 1.0)) ** 2 if long > short else 1.0
    outside = jnp.where(jnp.isnan(s), jnp.nan, 0.0)
    product = jnp.where(inside, below * (high**2 - s**2), outside)
    return jnp.sqrt(product) / (math.pi * std**2 * k)


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


_SPARE_DIGITS = 40


class Recurrence(NamedTuple):
    r"""Recurrence coefficients of the monic orthogonal polynomials of a measure.

    .. math:: P_{k+1}(s) = (s - a_k) P_k(s) - b_k P_{k-1}(s) , \qquad b_0 = \mu(1) .
    """

    a: np.ndarray
    b: np.ndarray

    def jacobi(self, size: int) -> np.ndarray:
        """Symmetric tridiagonal matrix whose eigenvalues are Gauss quadrature nodes."""
        off = np.sqrt(self.b[1:size])
        return np.diag(self.a[:size]) + np.diag(off, 1) + np.diag(off, -1)


def recurrence_of_moments(moments: Sequence[Fraction], count: int) -> Recurrence:
    r"""Recurrence from the moments :math:`m_0, \dots, m_{2 K - 1}` (Chebyshev).

    The map is ill-conditioned: about one digit and a half is lost for each coefficient.
    It is made with 40 digits to spare, and rounded at the end.

    Source: Gautschi (2004), algorithm 2.1.
    """
    if len(moments) < 2 * count:
        raise ValueError(
            f"moments: expected at least {2 * count} for {count} coefficients, got "
            f"{len(moments)}"
        )
    with decimal.localcontext() as context:
        context.prec = _SPARE_DIGITS + 6 * count
        numbers = [
            decimal.Decimal(m.numerator) / decimal.Decimal(m.denominator)
            for m in moments[: 2 * count]
        ]
        a, b = [numbers[1] / numbers[0]], [numbers[0]]
        before, now = [decimal.Decimal(0)] * len(numbers), numbers
        for k in range(1, count):
            after = [decimal.Decimal(0)] * len(numbers)
            for i in range(k, 2 * count - k):
                after[i] = now[i + 1] - a[-1] * now[i] - b[-1] * before[i]
            a.append(after[k + 1] / after[k] - now[k] / now[k - 1])
            b.append(after[k] / now[k - 1])
            before, now = now, after
        return Recurrence(np.array(a, np.float64), np.array(b, np.float64))
