"""Lines in panels with axes of their own, and scores of heads."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from icltheory.plotting.style import COLOURS, STYLE, plain_log_axis

__all__ = ["Line", "LinePanel", "line_panels"]


class Line(NamedTuple):
    """A line of a panel.

    Attributes:
        x: Where.
        y: What.
        colour: Number of its colour; lines that belong together share it.
        exact: Whether it is a formula, drawn dashed on top.
        error: Half width of a band around it, or ``None``.
    """

    x: Any
    y: Any
    colour: int = 0
    exact: bool = False
    error: Any = None


class LinePanel(NamedTuple):
    """One panel of lines.

    Attributes:
        lines: The lines by their labels; a label that begins with ``_`` is not shown.
        xlabel: Name of the x axis.
        ylabel: Name of the y axis.
        xscale: ``"linear"``, ``"log"`` or ``"symlog"``, linear from 0 to 1.
        yscale: ``"linear"`` or ``"log"``.
        levels: Horizontal lines by their labels.
        marks: Vertical lines by their labels.
        ylim: Limits of the y axis, or ``None``.
    """

    lines: Mapping[str, Line]
    xlabel: str
    ylabel: str
    xscale: str = "linear"
    yscale: str = "linear"
    levels: Mapping[str, float] = {}
    marks: Mapping[str, float] = {}
    ylim: tuple[float, float] | None = None


def line_panels(panels: Mapping[str, LinePanel], title: str, columns: int = 3):
    """Draws panels of lines, each with its own legend below it.

    Args:
        panels: The panels by their titles.
        title: What is shown.
        columns: Panels in a row.

    Returns:
        The matplotlib figure.

    References:
        Huang et al. (2024), phases of training; Cheng et al. (2024), error by depth.
        Verified by ``tests/experiments/test_mechanisms.py``.
    """
    import matplotlib.pyplot as plt

    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    most = max(_entries(panel) for panel in panels.values())
    with plt.rc_context({**STYLE, "font.size": 9}):
        figure, grid = plt.subplots(
            rows,
            columns,
            figsize=(4.4 * columns, (3.3 + 0.17 * -(-most // 2)) * rows),
            squeeze=False,
        )
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (name, panel) in zip(grid.flat, panels.items(), strict=False):
            _draw(axes, panel)
            axes.set_title(name)
            axes.legend(
                loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=8
            )
        figure.suptitle(title)
    return figure


def _entries(panel: LinePanel) -> int:
    lines = [label for label in panel.lines if not label.startswith("_")]
    return len(lines) + len(panel.levels) + len(panel.marks)


def _draw(axes, panel: LinePanel) -> None:
    for label, line in panel.lines.items():
        colour = COLOURS[line.colour % len(COLOURS)]
        x, y = np.asarray(line.x, float), np.asarray(line.y, float)
        # Simulations lie wide and pale under the formulas that they should follow.
        style = (
            {"linestyle": "--", "linewidth": 1.3, "zorder": 3}
            if line.exact
            else {"linewidth": 2.6, "alpha": 0.7}
        )
        axes.plot(x, y, color=colour, label=label, **style)
        if line.error is not None:
            half = np.asarray(line.error, float)
            axes.fill_between(x, y - half, y + half, color=colour, alpha=0.2, lw=0)
    for order, (label, level) in enumerate(panel.levels.items()):
        axes.axhline(level, color="grey", ls=(":", "-.")[order % 2], label=label)
    for order, (label, place) in enumerate(panel.marks.items()):
        axes.axvline(place, color="grey", ls=(":", "-.", "--")[order % 3], label=label)
    _scale(axes, panel)
    axes.set_xlabel(panel.xlabel)
    axes.set_ylabel(panel.ylabel)


def _scale(axes, panel: LinePanel) -> None:
    from matplotlib.ticker import MaxNLocator

    if panel.xscale == "symlog":
        axes.set_xscale("symlog", linthresh=1.0)
        axes.set_xlim(left=0)
    elif panel.xscale == "linear":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        axes.set_xscale(panel.xscale)
    if panel.ylim is not None:
        axes.set_ylim(*panel.ylim)
    if panel.yscale == "log":
        low, high = axes.get_ylim() if panel.ylim is None else panel.ylim
        plain_log_axis(axes.yaxis, high / low if low > 0 else np.inf)
