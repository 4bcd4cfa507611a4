"""Figures of several panels of lines, each with its own axes."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from icltheory.plotting.grid import SIZE, axes_for, axes_in_rows, name_ends
from icltheory.plotting.style import COLOURS, STYLE, plain_log_axis

__all__ = ["Line", "LinePanel", "line_panels"]

# Up to this many points are drawn as measurements, joined by thin lines.
_FEW = 12


class Line(NamedTuple):
    """One line of a panel.

    Attributes:
        x: Where.
        y: What.
        colour: Number of its colour, which lines that belong together share, or a
            colour of matplotlib, such as ``METHODS["Bayes"]``.
        exact: Whether it is a formula, drawn dashed on top.
        error: Half width of a band around it, or ``None``.
    """

    x: Any
    y: Any
    colour: int | str = 0
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


def line_panels(
    panels: Mapping[str, LinePanel],
    title: str = "",
    columns: int = 3,
    *,
    axes: Any = None,
):
    """Draws panels of lines, with each line's name at its right end.

    ``panels`` are by their titles, with ``columns`` of them in a row of a new figure,
    or on given axes, one for each. Returns the matplotlib figure.

    Source: Huang et al. (2024), phases of training; Cheng et al. (2024), error by
    depth.
    """
    if axes is not None:
        shown = axes_for(axes, len(panels))
        for ax, (name, panel) in zip(shown, panels.items(), strict=True):
            _draw(ax, name, panel)
        return shown[0].figure
    import matplotlib.pyplot as plt

    with plt.rc_context({**STYLE, "font.size": 9}):
        figure, grid = axes_in_rows(len(panels), columns, (4.4, 3.2), (0.0, 0.3))
        for ax, (name, panel) in zip(grid.flat, panels.items(), strict=False):
            _draw(ax, name, panel)
        figure.suptitle(title)
    return figure


def _draw(ax: Any, title: str, panel: LinePanel) -> None:
    ends = []
    for label, line in panel.lines.items():
        colour = line.colour
        if isinstance(colour, int):
            colour = COLOURS[colour % len(COLOURS)]
        # Simulations are drawn wide and pale below the formulas they are compared with.
        style = (
            {"linestyle": "--", "linewidth": 1.3, "zorder": 3}
            if line.exact
            else {"linewidth": 2.6, "alpha": 0.7}
        )
        if not line.exact and len(line.x) <= _FEW:
            style |= {"marker": "o", "markersize": 5}
        x, y = np.asarray(line.x, float), np.asarray(line.y, float)
        ax.plot(x, y, color=colour, label=label, **style)
        if line.error is not None:
            error = np.asarray(line.error, float)
            ax.fill_between(x, y - error, y + error, color=colour, alpha=0.2, lw=0)
        finite = y[np.isfinite(y)]
        if finite.size and not label.startswith("_"):
            ends.append((float(finite[-1]), label, colour))
    for order, (label, level) in enumerate(panel.levels.items()):
        ax.axhline(level, color="grey", ls=(":", "-.")[order % 2], label=label)
        ends.append((level, label, "0.35"))
    _scale(ax, panel)
    for label, place in panel.marks.items():
        ax.axvline(place, color="grey", ls=":", label=label)
        style = {"rotation": 90, "ha": "right", "va": "top", "color": "0.35"}
        box = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1}
        across = ax.get_xaxis_transform()
        text = ax.text(place, 0.98, label, transform=across, fontsize=SIZE, **style)
        text.set_bbox(box)
    name_ends(ax, ends)
    ax.set_xlabel(panel.xlabel)
    ax.set_ylabel(panel.ylabel)
    ax.set_title(title)


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
