"""Figures of errors and distances against the number of training tasks."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from icltheory.plotting import COLOURS, STYLE, name_ends
from icltheory.plotting.grid import axes_in_rows
from icltheory.plotting.style import plain_log_axis

__all__ = ["DiversityPanel", "DiversitySeries", "curves_against_diversity"]


class DiversitySeries(NamedTuple):
    """One curve against the number of tasks.

    Attributes:
        mean: Value at each pool size; NaN where there is none.
        error: Its standard error, a band or a bar two of them to either side.
        kind: A formula's line, a measured dot, or a measured open dot.
        colour: Index into ``COLOURS``.
    """

    mean: Any
    error: Any = None
    kind: Literal["line", "dashed", "dots", "open"] = "line"
    colour: int = 0


class DiversityPanel(NamedTuple):
    """One panel: its curves by label, and the pool size of the cross-over.

    Attributes:
        series: What is drawn.
        crossing: Pool size marked by a vertical line, or ``None``.
        logarithmic: Whether the axis of values is; else it begins at 0.
    """

    series: Mapping[str, DiversitySeries]
    crossing: float | None = None
    logarithmic: bool = True


def curves_against_diversity(
    panels: Mapping[str, DiversityPanel],
    sizes: Sequence[int],
    ylabel: str,
    title: str,
):
    """Draws errors or distances against the number of tasks, panels side by side.

    Args:
        panels: Panels by title.
        sizes: Ascending pool sizes; a last 0 stands for a new task in every prompt and
            is drawn apart, on the right.
        ylabel: What is measured.
        title: The model and the problem.

    Returns:
        The matplotlib figure.

    References:
        Raventos et al. 2023, Figures 2 and 3. Verified by
        ``tests/experiments/test_task_diversity.py``.
    """
    import matplotlib.pyplot as plt

    places = _places(sizes)
    with plt.rc_context(STYLE):
        figure, grid = axes_in_rows(len(panels), len(panels), (5.2, 4.0))
        for axes, (name, panel) in zip(grid.flat, panels.items(), strict=True):
            for label, series in panel.series.items():
                _draw(axes, places, label, series)
            if panel.crossing is not None:
                _mark(axes, float(np.log2(panel.crossing)), panel.crossing)
            ticks = [f"{size:,}" if size else "no pool" for size in sizes]
            axes.set_xticks(places, ticks, rotation=45, ha="right")
            axes.set(title=name, xlabel="tasks M in the pool")
            _set_values_axis(axes, panel)
            name_ends(axes, _ends(panel))
        grid[0, 0].set_ylabel(ylabel)
        figure.suptitle(title, fontsize=10)
    return figure


def _ends(panel: DiversityPanel) -> list[tuple[float, str, str]]:
    """Returns the last value of each curve with its name and colour."""
    ends = []
    for name, series in panel.series.items():
        known = np.asarray(series.mean, dtype=float)
        colour = COLOURS[series.colour % len(COLOURS)]
        ends.append((float(known[np.isfinite(known)][-1]), name, colour))
    return ends


def _set_values_axis(axes, panel: DiversityPanel) -> None:
    if not panel.logarithmic:
        axes.set_ylim(bottom=0)
        return
    rows = [np.asarray(series.mean, dtype=float) for series in panel.series.values()]
    shown = np.concatenate(rows)
    shown = shown[np.isfinite(shown) & (shown > 0)]
    plain_log_axis(axes.yaxis, shown.max() / shown.min())
    axes.set_ylim(shown.min() / 1.7, shown.max() * 1.9)


def _places(sizes: Sequence[int]) -> np.ndarray:
    """Returns log2 of the sizes; the entry for no pool is two steps to the right."""
    finite = np.log2([size for size in sizes if size])
    if len(finite) == len(sizes):
        return finite
    step = finite[-1] - finite[-2] if len(finite) > 1 else 1.0
    return np.append(finite, finite[-1] + 1.5 * step)


def _draw(axes, places, label: str, series: DiversitySeries) -> None:
    mean = np.asarray(series.mean, dtype=float)
    error = np.zeros_like(mean) if series.error is None else np.asarray(series.error)
    colour = COLOURS[series.colour % len(COLOURS)]
    if series.kind in ("line", "dashed"):
        style = "-" if series.kind == "line" else "--"
        axes.plot(places, mean, style, color=colour, label=label)
        low, high = mean - 2 * error, mean + 2 * error
        axes.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)
        return
    face = colour if series.kind == "dots" else "none"
    # An error bar that reaches 0 has no lower end on a logarithmic axis.
    below = np.minimum(2 * error, mean * (1 - 1e-3))
    axes.errorbar(
        places,
        mean,
        yerr=np.stack([below, 2 * error]),
        fmt="o" if series.kind == "dots" else "D",
        color=colour,
        markerfacecolor=face,
        markersize=5,
        capsize=2,
        linewidth=1,
        label=label,
        zorder=5,
    )


def _mark(axes, place: float, size: float) -> None:
    axes.axvline(place, color="grey", linewidth=0.9, linestyle=":", zorder=0)
    axes.annotate(
        f"crosses at M = {size:.0f}",
        (place, 1),
        (3, -10),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        color="grey",
        fontsize=8,
    )
