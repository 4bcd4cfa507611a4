"""Mean of independent values with its standard error and interval."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from icltheory._checks import as_numbers, check_choice, open_unit, real
from icltheory._core import Record, widened

# Values that differ by no more roundings of their mean than this are equal.
_ROUNDINGS = 4

_TAILS = {
    "two-sided": lambda dof, t: 2 * scipy.special.stdtr(dof, -np.abs(t)),
    "less": scipy.special.stdtr,
    "greater": lambda dof, t: scipy.special.stdtr(dof, -t),
}


class Interval(NamedTuple):
    """Lower and upper end of an interval: numbers, or arrays of one shape."""

    low: Any
    high: Any


def _python_number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


class Estimate(Record):
    r"""A mean with its standard error and degrees of freedom.

    .. math:: \bar x = \frac1S \sum_s x_s, \qquad
        \mathrm{se} = \sqrt{\frac{1}{S (S - 1)} \sum_s (x_s - \bar x)^2}, \qquad
        \nu = S - 1.

    Of a JAX array the fields are JAX arrays, also inside ``jit``; everything else is
    averaged by NumPy in float64. Values that are equal up to rounding have the standard
    error 0, a single value has NaN. It unpacks as ``mean, standard_error``.

    ``how`` says how the number arose, where that is not plain: ``"exact"``, ``"exact
    given the inputs"``, ``"simulated"``.

    Example:
        >>> found = Estimate.of([0.5, 0.7, 0.6])
        >>> f"{found.mean:.3f} +- {found.standard_error:.3f}"
        '0.600 +- 0.058'
        >>> low, high = found.interval()
        >>> f"{low:.2f} {high:.2f}"
        '0.35 0.85'

    Source: Student (1908).
    """

    mean: Any
    standard_error: Any
    dof: float | int = eqx.field(static=True, converter=_python_number)
    how: str = eqx.field(static=True, default="", repr=False)

    @classmethod
    def of(cls, values: Any, axis: int = 0, how: str = "") -> "Estimate":
        """Mean of independent values along an axis."""
        is_jax = isinstance(values, jax.Array)
        xp = jnp if is_jax else np
        read = real if is_jax else as_numbers
        values = read("values", widened(values) if is_jax else values)
        if values.ndim == 0 or not values.size:
            raise ValueError(f"values: expected at least one, got shape {values.shape}")
        if not -values.ndim <= axis < values.ndim:
            expected = f"{-values.ndim} <= axis < {values.ndim}"
            raise ValueError(f"axis: expected {expected}, got {axis}")
        count = values.shape[axis]
        mean = xp.mean(values, axis=axis)
        centred = values - xp.mean(values, axis=axis, keepdims=True)
        scale = float(count * (count - 1)) if count > 1 else np.nan
        # The squares of very small or large values are out of range.
        unit = xp.max(xp.abs(centred), axis=axis, keepdims=True)
        squares = xp.sum((centred / xp.where(unit > 0, unit, 1)) ** 2, axis=axis)
        error = xp.squeeze(unit, axis) * xp.sqrt(squares / scale)
        rounding = _ROUNDINGS * xp.finfo(mean.dtype).eps * xp.abs(mean)
        differ = (xp.ptp(values, axis=axis) > rounding).astype(mean.dtype)
        return cls(mean, error * differ, count - 1, how)

    def __iter__(self) -> Iterator[Any]:
        """Yields mean and standard error, for unpacking."""
        return iter((self.mean, self.standard_error))

    def __str__(self) -> str:
        if np.shape(self.mean) != ():
            return repr(self)
        text = f"{self.mean:.4f} ({self.standard_error:.4f})"
        return f"{text}, {self.how}" if self.how else text

    def interval(self, level: float | int = 0.95) -> Interval:
        """Student's interval, the mean -+ :meth:`half_width`."""
        half = self.half_width(level)
        return Interval(self.mean - half, self.mean + half)

    def half_width(self, level: float | int = 0.95) -> Any:
        r"""Half of the interval's width, :math:`t_{\nu, (1 + level) / 2}\,` se."""
        open_unit("level", level)
        quantile = float(scipy.special.stdtrit(self.dof, (1 + level) / 2))
        return quantile * self.standard_error

    def p_value(self, alternative: str = "two-sided") -> Any:
        r"""p-value of Student's t-test of mean zero, for example of paired differences.

        .. math:: t = \bar x / \mathrm{se}, \qquad
            2 P(T_\nu \le -|t|), \; P(T_\nu \le t), \; P(T_\nu \ge t)

        for ``"two-sided"``, ``"less"`` and ``"greater"``; NaN where the standard error
        is. With a standard error of 0 it is that of an infinite t, and 1 where the mean
        is 0 as well: too strong for a few values that are equal by chance.
        """
        check_choice("alternative", alternative, tuple(_TAILS))
        mean, error = np.asarray(self.mean, float), np.asarray(self.standard_error)
        with np.errstate(divide="ignore", invalid="ignore"):
            p = _TAILS[alternative](self.dof, mean / error)
        return np.where((error == 0) & (mean == 0), 1.0, p)[()]


def crossed_estimate(values: Any) -> Estimate:
    r"""Mean over two crossed factors, such as demonstrations and questions.

    .. math:: \mathrm{se}^2 = \frac{\operatorname{var}_s (\bar a_{s \cdot})}{S}
        + \frac{\operatorname{var}_i (\bar a_{\cdot i})}{n} , \qquad
        \nu = \frac{\mathrm{se}^4}{\sum_k \mathrm{se}_k^4 / \nu_k}

    for values ``(draws, questions)`` of S draws of demonstrations with n questions. The
    part that belongs to both is counted twice, so that the interval is wide rather than
    narrow; its degrees of freedom are Satterthwaite's. Of one draw only the questions
    count.

    Example:
        >>> found = crossed_estimate([[1, 0, 1, 1], [1, 0, 0, 1]])
        >>> f"{found.mean:.3f} {found.standard_error:.3f} {found.dof:.1f}"
        '0.625 0.270 4.0'

    Source: Satterthwaite (1946).
    """
    table = as_numbers("values", values)
    if table.ndim != 2 or not table.size:
        raise ValueError(f"values: expected (draws, questions), got {table.shape}")
    parts = table.mean(axis=1), table.mean(axis=0)
    found = [Estimate.of(part) for part in parts if len(part) > 1]
    squares = np.array([e.standard_error**2 for e in found])
    square = float(squares.sum())
    if not found:
        return Estimate(float(table.mean()), np.nan, 0)
    shares = squares / square if square > 0 else np.array([1.0])
    dof = 1 / sum(s**2 / e.dof for s, e in zip(shares, found, strict=False))
    return Estimate(float(table.mean()), float(np.sqrt(square)), float(dof))
