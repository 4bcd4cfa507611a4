"""Curves of in-context classification of patterns, panel by panel."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from icltheory.plotting.style import COLOURS, STYLE, plain_log_axis

__all__ = ["PatternPanel", "PatternSeries", "pattern_panels"]


class PatternSeries(NamedTuple):
    """One thing that is drawn against another.

    Attributes:
        x: Where.
        mean: Its values; NaN where there is none.
        low: Lower ends of intervals, if there are any.
        high: Upper ends.
        kind: A line, as of a formula; measured dots; open ones, or dots, joined by a
            thin line.
        colour: Index into ``COLOURS``.
    """

    x: Any
    mean: Any
    low: Any = None
    high: Any = None
    kind: Literal["line", "dashed", "dots", "open", "joined"] = "joined"
    colour: int = 0


class PatternPanel(NamedTuple):
    """One panel.

    Attributes:
        series: What is drawn, by label.
        xlabel: Name of the horizontal axis.
        ylabel: Name of the vertical axis.
        scale: Which axes are logarithmic.
        floor: Lowest value shown on a logarithmic axis, where zeros are put.
        marks: Vertical lines, by label.
    """

    series: Mapping[str, PatternSeries]
    xlabel: str
    ylabel: str
    scale: Literal["linear", "log", "log-log"] = "linear"
    floor: float = 1e-4
    marks: Mapping[str, float] = {}


def pattern_panels(panels: Mapping[str, PatternPanel], title: str, columns: int = 2):
    """Draws panels of curves side by side, with one legend if all say the same.

    On a logarithmic axis a value of 0 is drawn as a triangle at the floor.

    Args:
        panels: Panels by title.
        title: What was measured.
        columns: Panels in a row.

    Returns:
        The matplotlib figure.

    References:
        Li et al. (2024), Figures 8, 9, 12, 13, 27 and 28. Verified by
        ``tests/experiments/test_pattern_icl.py``.
    """
    import matplotlib.pyplot as plt

    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    shared = len({tuple(panel.series) for panel in panels.values()}) == 1
    with plt.rc_context({**STYLE, "font.size": 9}):
        size = (4.9 * columns, (3.7 + 0.5 * shared) * rows + 0.4)
        figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (name, panel) in zip(grid.flat, panels.items(), strict=False):
            drawn = {
                label: _draw(axes, series, panel)
                for label, series in panel.series.items()
            }
            for label, place in panel.marks.items():
                drawn[label] = axes.axvline(place, color="grey", linestyle=":", lw=1)
            axes.set(title=name, xlabel=panel.xlabel, ylabel=panel.ylabel)
            _set_scale(axes, panel)
            if not shared or len(panels) == 1:
                axes.legend(drawn.values(), drawn, fontsize=7.5)
            elif axes is grid[0, 0]:
                entries = drawn.values(), drawn
                figure.legend(
                    *entries, loc="outside lower center", ncols=2 * columns, fontsize=8
                )
        figure.suptitle(title)
    return figure


def _draw(axes, series: PatternSeries, panel: PatternPanel):
    x, mean = np.asarray(series.x, float), np.asarray(series.mean, float)
    colour = COLOURS[series.colour % len(COLOURS)]
    none = (mean <= 0) & (panel.scale != "linear")
    shown = np.where(none, np.nan, mean)
    if series.kind in ("line", "dashed"):
        if series.low is not None:
            low, high = np.asarray(series.low, float), np.asarray(series.high, float)
            if panel.scale != "linear":
                low = np.maximum(low, panel.floor)
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        return axes.plot(x, shown, "-" if series.kind == "line" else "--", c=colour)[0]
    axes.plot(x[none], np.full(none.sum(), panel.floor), "v", color=colour, ms=4)
    return axes.errorbar(
        x,
        shown,
        yerr=_bars(series, shown, panel),
        fmt={"dots": "o", "open": "D--", "joined": "o-"}[series.kind],
        color=colour,
        markerfacecolor="none" if series.kind == "open" else colour,
        markersize=4,
        capsize=2,
        linewidth=1,
        zorder=4,
    )


def _bars(series: PatternSeries, mean: np.ndarray, panel: PatternPanel):
    if series.low is None:
        return None
    low, high = np.asarray(series.low, float), np.asarray(series.high, float)
    if panel.scale != "linear":  # an end at 0 has no place on the axis
        low = np.maximum(low, panel.floor)
    return np.stack([np.maximum(mean - low, 0), np.maximum(high - mean, 0)])


def _set_scale(axes, panel: PatternPanel) -> None:
    x = np.unique(np.concatenate([np.ravel(s.x) for s in panel.series.values()]))
    if np.all(x == np.round(x)):
        axes.xaxis.get_major_locator().set_params(integer=True)
    if panel.scale == "linear":
        return
    values = np.concatenate([np.ravel(s.mean) for s in panel.series.values()])
    top = max(values[np.isfinite(values)], default=10 * panel.floor)
    plain_log_axis(axes.yaxis, top / panel.floor)
    axes.set_ylim(panel.floor / 1.3, top * 1.6)
    if panel.scale == "log-log":
        axes.set_xscale("log")
        if len(x) <= 8:
            axes.set_xticks(x, [f"{value:g}" for value in x])
            axes.minorticks_off()
