"""Orthogonal polynomials of a measure given by its moments."""

import decimal
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

_SPARE_DIGITS = 40


class Recurrence(NamedTuple):
    r"""Recurrence coefficients of the monic orthogonal polynomials of a measure.

    .. math:: P_{k+1}(s) = (s - a_k) P_k(s) - b_k P_{k-1}(s) , \qquad b_0 = \mu(1) .

    Args:
        a: :math:`a_0, \dots, a_{K-1}`.
        b: :math:`b_0, \dots, b_{K-1}`.
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
