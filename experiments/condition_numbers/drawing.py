"""Condition numbers of one model's matrices along its depth, with their yardsticks."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory.plotting.style import COLOURS, STYLE

__all__ = ["ConditionCurve", "condition_numbers_along_depth"]

_MARKERS = "osD^v<>"


class ConditionCurve(NamedTuple):
    """Condition numbers of one matrix.

    Attributes:
        layers: Numbers of the layers.
        values: Condition number in each; infinite ones are left out.
        null: Median condition number of random matrices of the shape.
        null_label: The shape, for the legend.
        ceiling: In each layer, where the rounding of the weights takes over.
        resolved: Where the smallest singular value exceeds that rounding; drawn
            filled, others hollow.
        spread: Lower and upper quantile of random matrices over their median, where
            they spread widely.
    """

    layers: Sequence[int]
    values: Sequence[float]
    null: float
    null_label: str
    ceiling: Sequence[float]
    resolved: Sequence[bool]
    spread: tuple[float, float] | None = None


def condition_numbers_along_depth(
    panels: Mapping[str, Mapping[str, ConditionCurve]], title: str
):
    """Draws one curve a matrix over the layers, and below it the ratio to the null.

    Dotted lines are the medians of random matrices, one for each shape; dashed ones the
    ceilings above which rounding decides, if any value comes near; the grey region is
    the spread of random square matrices.

    Args:
        panels: For each module, the curve of each matrix.
        title: Which model.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Figure 3. Verified by
        ``tests/experiments/test_condition_numbers.py``.
    """
    import matplotlib.pyplot as plt

    columns = len(panels)
    with plt.rc_context({**STYLE, "font.size": 9, "lines.linewidth": 1.4}):
        figure, grid = plt.subplots(
            2,
            columns,
            figsize=(4.6 * columns + 0.6, 6.4),
            sharex="col",
            sharey="row",
            squeeze=False,
            height_ratios=(3, 2),
        )
        tops = [_top(curves) for curves in panels.values()]
        for column, (name, curves) in enumerate(panels.items()):
            above, below = grid[:, column]
            for order, (matrix, curve) in enumerate(curves.items()):
                _curve(above, order, matrix, curve, 1.0)
                _curve(below, order, None, curve, curve.null)
            _nulls(above, curves)
            _rounding(above, curves, max(tops))
            below.axhline(1.0, color="grey", linestyle=":", linewidth=1.2)
            below.set_yscale("log")
            _spread(below, curves)
            above.set(title=name, yscale="log")
            below.set_xlabel("layer")
            below.xaxis.get_major_locator().set_params(integer=True)
            above.legend(fontsize=7.5, ncols=2)
        low = min(float(c.null) for curves in panels.values() for c in curves.values())
        found = [
            v for curves in panels.values() for c in curves.values() for v in c.values
        ]
        grid[0, 0].set_ylim(min([low, *found]) / 1.6, 40 * max(tops))
        grid[0, 0].set_ylabel("condition number")
        grid[1, 0].set_ylabel("over that of a\nrandom matrix")
        figure.suptitle(title)
    return figure


def _curve(axes, order: int, label: str | None, curve: ConditionCurve, scale) -> None:
    colour, marker = COLOURS[order % len(COLOURS)], _MARKERS[order % len(_MARKERS)]
    layers, values = np.asarray(curve.layers), np.asarray(curve.values, float) / scale
    values = np.where(np.isfinite(values), values, np.nan)
    kind: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4}
    axes.plot(layers, values, "-", label=label, **kind)
    hidden = ~np.asarray(curve.resolved, bool)
    if hidden.any():
        hollow = {**kind, "markerfacecolor": "w", "linestyle": ""}
        axes.plot(layers[hidden], values[hidden], **hollow)


def _nulls(axes, curves: Mapping[str, ConditionCurve]) -> None:
    """A line for each shape, in the colour of its first matrix."""
    drawn: set[str] = set()
    for order, curve in enumerate(curves.values()):
        if curve.null_label not in drawn:
            drawn.add(curve.null_label)
            axes.axhline(
                curve.null,
                color=COLOURS[order % len(COLOURS)],
                linestyle=":",
                linewidth=1.2,
                label=f"random {curve.null_label}",
            )


def _spread(axes, curves: Mapping[str, ConditionCurve]) -> None:
    spread = next((c.spread for c in curves.values() if c.spread is not None), None)
    if spread is not None:
        label = "90 % of random square ones"
        axes.axhspan(*spread, color="grey", alpha=0.15, lw=0, label=label)
        axes.legend(fontsize=7.5)


def _rounding(axes, curves: Mapping[str, ConditionCurve], top: float) -> None:
    """Ceilings in the colours of their matrices, where values may come near them."""
    label: str | None = "rounding decides"
    for order, curve in enumerate(curves.values()):
        if np.min(curve.ceiling) < 12 * top:
            colour = COLOURS[order % len(COLOURS)]
            axes.plot(
                curve.layers, curve.ceiling, "--", color=colour, lw=0.9, label=label
            )
            label = None


def _top(curves: Mapping[str, ConditionCurve]) -> float:
    values = [v for c in curves.values() for v in (*c.values, c.null) if np.isfinite(v)]
    return max(values)
