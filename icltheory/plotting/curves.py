"""Curves with their intervals."""

from typing import Any, NamedTuple

import numpy as np

__all__ = ["Curve", "draw_curve"]


class Curve(NamedTuple):
    """A curve over the number of examples.

    Attributes:
        mean: Value at each ``k``.
        low: Lower end of the interval, or ``None``.
        high: Upper end of the interval, or ``None``.
        exact: Whether it is a formula, drawn dashed, and not a measurement.
    """

    mean: Any
    low: Any = None
    high: Any = None
    exact: bool = False

    @classmethod
    def of(
        cls, values: Any, level: float | int = 0.95, *, exact: bool = True
    ) -> "Curve":
        """A curve of an estimate with its interval, or of numbers as a formula.

        Args:
            values: An estimate, which has a ``mean`` and ``interval(level)`` as
                :class:`icltheory.statistics.Estimate` has; an array over k = 0, 1, ...;
                or a curve, which is returned.
            level: Confidence level of the interval.
            exact: Whether an array is a formula; an estimate is a measurement.

        Returns:
            The curve.

        Example:
            >>> Curve.of([1.0, 0.5]).exact
            True

        References:
            Verified by ``tests/plotting/test_plotting.py``.
        """
        if isinstance(values, Curve):
            return values
        if not hasattr(values, "interval"):
            return cls(np.asarray(values, float), exact=exact)
        low, high = values.interval(level)
        return cls(values.mean, low, high)


def draw_curve(axes, curve: Curve, label: str, colour, **kwargs) -> None:
    """Draws a curve at 0, 1, 2, ... with its interval as a band.

    Args:
        axes: The matplotlib axes to draw on.
        curve: The curve; dashed if it is exact.
        label: Its entry in the legend.
        colour: Its colour.
        **kwargs: Further options of ``axes.plot``.

    Returns:
        Nothing; the axes hold the curve.

    References:
        Verified by ``tests/plotting/test_plotting.py``.
    """
    if (curve.low is None) != (curve.high is None):
        given = "low" if curve.high is None else "high"
        raise ValueError(f"curve: expected low and high or neither, got {given}")
    k = np.arange(len(curve.mean))
    mean = np.asarray(curve.mean, dtype=float)
    style = {"linestyle": "--" if curve.exact else "-", **kwargs}
    axes.plot(k, mean, color=colour, label=label, **style)
    if curve.low is not None:
        low, high = (np.asarray(v, dtype=float) for v in (curve.low, curve.high))
        axes.fill_between(k, low, high, color=colour, alpha=0.2, linewidth=0)
