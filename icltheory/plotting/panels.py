"""Panels of figures: their axes, lines, legends, and names at the ends of curves."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory.plotting.style import COLOURS, STYLE, plain_log_axis

__all__ = [
    "SMALL",
    "Line",
    "LinePanel",
    "axes_in_rows",
    "entries_of",
    "legend_below",
    "line_panels",
    "name_ends",
    "panel_grid",
]

SMALL = {**STYLE, "font.size": 9, "lines.linewidth": 1.5}
_SIZE = 8.0  # of names
_FEW = 12  # so many points are drawn as measurements, joined by thin lines


def new_axes(ax: Any) -> Any:
    """Returns the given axes, or those of a new figure in the common style."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        return plt.subplots(figsize=(5.5, 3.8))[1]


def axes_for(axes: Any, count: int) -> Sequence[Any]:
    """Returns the given axes of some panels, in order."""
    found = list(np.ravel(axes))
    if len(found) != count:
        raise ValueError(
            f"axes: expected {count}, one for each panel, got {len(found)}"
        )
    return found


def axes_in_rows(
    count: int,
    columns: int,
    size: tuple[float, float],
    margin: tuple[float, float] = (0.0, 0.0),
    least_width: float = 0.0,
) -> tuple[Any, Any]:
    """Makes a figure with a grid of ``count`` axes and a margin beside and above."""
    import matplotlib.pyplot as plt

    columns = max(1, min(columns, count))
    rows = -(-count // columns)
    width = max(size[0] * columns + margin[0], least_width)
    figure, grid = plt.subplots(
        rows, columns, figsize=(width, size[1] * rows + margin[1]), squeeze=False
    )
    for axes in grid.flat[count:]:
        axes.set_visible(False)
    return figure, grid


@contextlib.contextmanager
def panel_grid(
    panels, columns: int, title: str, size: tuple[float, float], legend: bool = True
):
    """Yields panels of one size in rows, with one legend below all of them.

    A context manager that yields the figure, the axes of the ``panels``, which are
    titles, and a dictionary for further entries of the legend. ``columns`` are the most
    panels in a row, ``size`` the width and height of a panel in inches. Without a
    ``legend`` the curves have to be named.
    """
    if not len(panels):
        raise ValueError("panels: expected at least one, got none")
    import matplotlib.pyplot as plt

    columns = min(columns, len(panels))
    with plt.rc_context(SMALL):
        figure, grid = axes_in_rows(len(panels), columns, size, (0.3, 0.9), 5.5)
        shown = grid.flat[: len(panels)]
        for axes, name in zip(shown, panels, strict=True):
            axes.set_title(name, fontsize=9)
        more: dict[str, Any] = {}
        yield figure, shown, more
        if legend:
            legend_below(figure, entries_of(shown) | more, 2 * columns)
        figure.suptitle(title)


def entries_of(shown) -> dict[str, Any]:
    """Returns one handle for each label of some axes, in order of appearance."""
    found: dict[str, Any] = {}
    for axes in shown:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return found


def legend_below(figure, entries: Mapping[str, Any], columns: int) -> None:
    """Draws a legend of handles by their labels at the lower edge of the figure."""
    if entries:
        figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside lower center",
            ncols=min(len(entries), max(columns, 2)),
            fontsize=8,
        )


def name_ends(axes: Any, ends: Iterable[tuple[float, str, Any]]) -> None:
    """Writes names to the right of the axes at the heights of the curves' ends.

    ``ends`` are the value at the end, name and colour of each curve. Names that would
    overlap are moved apart, as little as possible, and stay between the ends of the
    axis if they fit. They follow when its limits change.
    """
    ends = sorted(ends, key=lambda end: end[0])
    right = axes.transAxes
    texts = [
        axes.text(
            1.02, 0.0, name, color=colour, fontsize=_SIZE, va="center", transform=right
        )
        for _, name, colour in ends
    ]
    # Constrained layout will reduce the height of the axes by about a quarter.
    lines = max(1, *(name.count("\n") + 1 for _, name, _ in ends)) if ends else 1
    inches = axes.get_position().height * axes.figure.get_figheight()
    gap = 1.5 * _SIZE / 72 * lines / inches

    def place(axes: Any) -> None:
        data = axes.get_yaxis_transform()
        points = data.transform([(1.0, value) for value, _, _ in ends])
        heights = right.inverted().transform(points)[:, 1]
        for text, height in zip(texts, _apart(heights, gap), strict=True):
            text.set_y(float(height))

    if ends:
        place(axes)
        axes.callbacks.connect("ylim_changed", place)


def _apart(wanted: np.ndarray, gap: float) -> np.ndarray:
    """Returns increasing heights, at least ``gap`` apart, closest to those given.

    Without the gaps this is a regression on ascending numbers, which pooling adjacent
    violators solves; limits of a regression on ascending numbers cut its solution.
    """
    steps = gap * np.arange(len(wanted))
    blocks: list[list[float]] = []
    for value in np.clip(wanted, 0.0, 1.0) - steps:
        blocks.append([value])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    level = np.concatenate([np.full(len(b), np.mean(b)) for b in blocks])
    largest = 1.0 - steps[-1]
    return np.clip(level, min(0.0, largest / 2), max(largest, largest / 2)) + steps


class Line(NamedTuple):
    """One line of a panel."""

    x: Any
    y: Any
    colour: int | str = 0  # number of the colour, or a colour of matplotlib
    exact: bool = False  # whether it is a formula, drawn dashed on top
    error: Any = None  # half width of a band around it


class LinePanel(NamedTuple):
    """One panel of lines."""

    lines: Mapping[str, Line]  # by their labels; one that begins with _ is not shown
    xlabel: str
    ylabel: str
    xscale: str = "linear"  # or "log", or "symlog", which is linear from 0 to 1
    yscale: str = "linear"  # or "log"
    levels: Mapping[str, float] = {}  # horizontal lines by their labels
    # vertical lines by their labels, best of one letter
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
    import matplotlib.pyplot as plt

    own = {**STYLE, "font.size": 9} if axes is None else {}
    with plt.rc_context(own):
        if axes is None:
            figure, grid = axes_in_rows(len(panels), columns, (4.4, 3.2), (0.0, 0.3))
            axes = grid.flat[: len(panels)]
            figure.suptitle(title)
        shown = axes_for(axes, len(panels))
        for ax, (name, panel) in zip(shown, panels.items(), strict=True):
            _draw(ax, name, panel)
    return shown[0].figure


def _draw(ax: Any, title: str, panel: LinePanel) -> None:
    from matplotlib.ticker import NullLocator

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
    for place in panel.marks.values():
        ax.axvline(place, color="grey", ls=":")
    if panel.marks:  # named above the axes, where no curve crosses the names
        above = ax.secondary_xaxis("top")
        above.xaxis.set_minor_locator(NullLocator())
        look = {"fontsize": _SIZE, "color": "0.35"}
        above.set_xticks(list(panel.marks.values()), list(panel.marks), **look)
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
