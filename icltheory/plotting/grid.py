"""Rows of panels with one legend below them."""

import contextlib
from collections.abc import Mapping
from typing import Any

from icltheory.plotting.style import STYLE

__all__ = ["SMALL", "entries_of", "legend_below", "panel_grid", "reference_lines"]

SMALL = {**STYLE, "font.size": 9, "lines.linewidth": 1.5}


@contextlib.contextmanager
def panel_grid(panels, columns: int, title: str, size: tuple[float, float]):
    """Panels of one size in rows, and one legend below all of them.

    Args:
        panels: The titles of the panels.
        columns: Panels in a row, at most.
        title: Title of the figure.
        size: Width and height of a panel in inches.

    Yields:
        The figure, the axes of the panels, and a dictionary to which further entries of
        the legend may be added.
    """
    import matplotlib.pyplot as plt

    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figsize = (max(size[0] * columns + 0.3, 5.5), size[1] * rows + 0.9)
    with plt.rc_context(SMALL):
        figure, grid = plt.subplots(rows, columns, figsize=figsize, squeeze=False)
        shown = grid.flat[: len(panels)]
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, name in zip(shown, panels, strict=True):
            axes.set_title(name, fontsize=9)
        more: dict[str, Any] = {}
        yield figure, shown, more
        legend_below(figure, entries_of(shown) | more, 2 * columns)
        figure.suptitle(title)


def entries_of(shown) -> dict[str, Any]:
    """One handle for each label of some axes, in the order of appearance."""
    found: dict[str, Any] = {}
    for axes in shown:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return found


def legend_below(figure, entries: Mapping[str, Any], columns: int) -> None:
    """A legend outside the panels, at the lower edge of the figure."""
    if entries:
        figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside lower center",
            ncols=min(len(entries), max(columns, 2)),
            fontsize=8,
        )


def reference_lines(axes, lines) -> None:
    """Horizontal lines with their labels; a line without a value is left out."""
    for (label, (style, colour)), value in lines:
        if value is not None:
            axes.axhline(value, linestyle=style, color=colour, lw=1.2, label=label)
