"""Axes of figures, their legends, and names at the ends of curves."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from icltheory.plotting.style import STYLE

__all__ = ["SMALL", "entries_of", "legend_below", "name_ends", "panel_grid"]

SMALL = {**STYLE, "font.size": 9, "lines.linewidth": 1.5}
SIZE = 8.0


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

    A context manager that yields the figure, the axes of the panels, and a dictionary
    for further entries of the legend.

    Args:
        panels: The titles of the panels.
        columns: Panels in a row, at most.
        title: Title of the figure.
        size: Width and height of a panel in inches.
        legend: Whether there is a legend; without one the curves name themselves.
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
            1.02, 0.0, name, color=colour, fontsize=SIZE, va="center", transform=right
        )
        for _, name, colour in ends
    ]
    # Constrained layout will reduce the height of the axes by about a quarter.
    lines = max(1, *(name.count("\n") + 1 for _, name, _ in ends)) if ends else 1
    inches = axes.get_position().height * axes.figure.get_figheight()
    gap = 1.5 * SIZE / 72 * lines / inches

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
