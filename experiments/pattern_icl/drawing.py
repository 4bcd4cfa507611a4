"""Panels of curves for in-context classification of patterns."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from experiments._frame.looks import key, layer_marker, name_ends, page
from icltheory.plotting.style import COLOURS, plain_log_axis

__all__ = ["PatternPanel", "PatternSeries", "pattern_panels"]

MOST_NAMES = 6


class PatternSeries(NamedTuple):
    """One curve of a panel.

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
    """One panel of curves.

    Attributes:
        series: What is drawn, by label, which stands at its right end or, of many, in
            the legend; a label that begins with ``_`` is not shown.
        xlabel: Name of the horizontal axis.
        ylabel: Name of the vertical axis.
        scale: Which axes are logarithmic.
        floor: Lowest value shown on a logarithmic axis, where zeros are put.
        marks: Vertical lines, by label.
        laws: What dashed lines are, for the legend.
    """

    series: Mapping[str, PatternSeries]
    xlabel: str
    ylabel: str
    scale: Literal["linear", "log", "log-log"] = "linear"
    floor: float = 1e-4
    marks: Mapping[str, float] = {}
    laws: str = ""


def pattern_panels(panels: Mapping[str, PatternPanel], title: str, columns: int = 2):
    """Draws panels of curves side by side, each curve labelled at its right end.

    On a logarithmic axis a value of 0 is drawn as a triangle at the floor.

    Args:
        panels: Panels by title.
        title: What was measured.
        columns: Panels in a row.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: If there is no panel.

    References:
        Li et al. (2024), Figures 8, 9, 12, 13, 27 and 28. Verified by
        ``tests/experiments/test_pattern_icl.py``.
    """
    with page(panels, columns, title, 3.0) as (shown, entries):
        for axes, panel in zip(shown, panels.values(), strict=True):
            many = len(panel.series) > MOST_NAMES or _meet(panel)
            for label, series in panel.series.items():
                _draw(axes, label if many else f"_{label}", series, panel)
            for label, place in panel.marks.items():
                axes.axvline(place, color="grey", linestyle=":", lw=1)
                text = {"fontsize": 8, "color": "0.35", "rotation": 90, "va": "top"}
                across = axes.get_xaxis_transform()
                axes.text(place, 0.98, label, ha="right", transform=across, **text)
            axes.set(xlabel=panel.xlabel, ylabel=panel.ylabel)
            _set_scale(axes, panel)
            name_ends(axes, [] if many else list(_ends(panel)))
            if panel.laws:
                entries[panel.laws] = key(linestyle="--")
    return shown[0].figure


def _meet(panel: PatternPanel) -> bool:
    """Whether all curves end at the same place, where labels would overlap."""
    ends = [end for end, *_ in _ends(panel)]
    if panel.scale != "linear" or len(ends) < 2:
        return False
    values = np.concatenate([np.ravel(s.mean) for s in panel.series.values()])
    return bool(np.ptp(ends) < 0.01 * np.ptp(values[np.isfinite(values)]))


def _ends(panel: PatternPanel) -> Iterator[tuple[float, str, str]]:
    for label, series in panel.series.items():
        mean = np.asarray(series.mean, float)[np.argsort(series.x)]
        mean = mean[np.isfinite(mean)]
        if mean.size and not label.startswith("_"):
            end = mean[-1] if panel.scale == "linear" else max(mean[-1], panel.floor)
            yield float(end), label, COLOURS[series.colour % len(COLOURS)]


def _draw(axes, label: str, series: PatternSeries, panel: PatternPanel) -> None:
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
        style = "-" if series.kind == "line" else "--"
        axes.plot(x, shown, style, color=colour, label=label)
        return
    # Later markers are smaller, since they may coincide with earlier ones.
    look = {"color": colour, "markersize": max(3, 9 - 2 * series.colour)}
    axes.plot(x[none], np.full(none.sum(), panel.floor), "v", **look)
    axes.errorbar(
        x,
        shown,
        yerr=_bars(series, shown, panel),
        linestyle={"dots": "", "open": "--", "joined": "-"}[series.kind],
        marker=layer_marker(series.colour),
        label=label,
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
    if panel.scale != "linear":  # an end at 0 cannot be drawn on this axis
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
