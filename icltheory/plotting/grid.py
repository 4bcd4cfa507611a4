"""Rows of panels with one legend below them."""

import contextlib
from collections.abc import Mapping
from typing import Any

from icltheory.plotting.style import STYLE

__all__ = ["SMALL", "entries_of", "legend_below", "panel_grid"]

SMALL = {**STYLE, "font.size": 9, "lines.linewidth": 1.5}


@contextlib.contextmanager
def panel_grid(
    panels, columns: int, title: str, size: tuple[float, float], legend: bool = True
):
    """Yields panels of one size in rows, with one legend below all of them.

    Args:
        panels: The titles of the panels.
        columns: Panels in a row, at most.
        title: Title of the figure.
        size: Width and height of a panel in inches.
        legend: Whether there is a legend; without one the curves name themselves.

    Returns:
        A context manager that yields the figure, the axes of the panels, and a
        dictionary for further entries of the legend.
    """
    if isinstance(panels, str):
        raise TypeError(f"panels: expected several titles, got the string {panels!r}")
    if not len(panels) or columns < 1:
        raise ValueError(
            f"panels: expected at least one in at least one column, got {len(panels)} "
            f"in {columns}"
        )
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


def entries_of(shown) -> dict[str, Any]:
    """Returns one handle for each label of some axes, in order of appearance.

    Args:
        shown: The axes.

    Returns:
        Handles of matplotlib by their labels.
    """
    found: dict[str, Any] = {}
    for axes in shown:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return found


def legend_below(figure, entries: Mapping[str, Any], columns: int) -> None:
    """Draws a legend outside the panels, at the lower edge of the figure.

    Args:
        figure: The figure.
        entries: Handles by their labels; no legend is drawn without any.
        columns: Entries in a row, at most.

    Returns:
        Nothing; the figure holds the legend.
    """
    if entries:
        figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside lower center",
            ncols=min(len(entries), max(columns, 2)),
            fontsize=8,
        )
