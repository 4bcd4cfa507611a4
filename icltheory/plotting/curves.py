"""Curves with intervals."""

from typing import Any, NamedTuple

import numpy as np

from icltheory.plotting._given import numbers

__all__ = ["Curve", "draw_curve"]


class Curve(NamedTuple):
    """A curve over the number of examples or another quantity.

    Attributes:
        mean: Value at each place.
        low: Lower end of the interval, or ``None``.
        high: Upper end of the interval, or ``None``.
        exact: Whether it is a formula, drawn dashed, and not a measurement.
        x: The places; 0, 1, 2, ... when left out.
    """

    mean: Any
    low: Any = None
    high: Any = None
    exact: bool = False
    x: Any = None

    @classmethod
    def of(
        cls, values: Any, level: float | int = 0.95, *, exact: bool = True
    ) -> "Curve":
        """Converts an estimate with its interval, or numbers without one, to a curve.

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
        """
        if isinstance(values, Curve):
            return values
        if not hasattr(values, "interval"):
            return cls(np.asarray(values), exact=exact)
        low, high = values.interval(level)
        return cls(values.mean, low, high)


def as_curve(given: Any, name: str = "curve") -> Curve:
    """Converts a curve, or an array of values, to a curve of NumPy arrays.

    Args:
        given: The curve or the values.
        name: What it is called, for the error.

    Returns:
        The curve, whose places are numbers.
    """
    curve = Curve.of(given, exact=False)
    if (curve.low is None) != (curve.high is None):
        end = "low" if curve.high is None else "high"
        raise ValueError(f"{name}: expected low and high or neither, got {end}")
    mean = numbers(name, curve.mean, "places")
    found = {"mean": mean, "x": np.arange(len(mean))}
    for entry in ("low", "high", "x"):
        if (values := getattr(curve, entry)) is not None:
            found[entry] = numbers(f"{name}: {entry}", values, "places")
            if len(found[entry]) != len(mean):
                raise ValueError(
                    f"{name}: expected {len(mean)} values of {entry}, as of mean, got "
                    f"{len(found[entry])}"
                )
    return curve._replace(**found)


def draw_curve(axes, curve: Any, label: str, colour, **kwargs) -> None:
    """Draws a curve with its interval as a band.

    Args:
        axes: The matplotlib axes to draw on.
        curve: The :class:`Curve`, dashed if it is exact, or an array of its values.
        label: Its entry in the legend.
        colour: Its colour.
        **kwargs: Further options of ``axes.plot``.

    Returns:
        Nothing; the axes hold the curve.
    """
    curve = as_curve(curve)
    style = {"linestyle": "--" if curve.exact else "-", **kwargs}
    axes.plot(curve.x, curve.mean, color=colour, label=label, **style)
    if curve.low is not None:
        band = {"color": colour, "alpha": 0.2, "linewidth": 0}
        axes.fill_between(curve.x, curve.low, curve.high, **band)
