"""The picture: how many times faster than the alternative, how near to the limit."""

from typing import Any

import numpy as np

from benchmarks import _table
from benchmarks._results import Results
from benchmarks._suite import BenchmarkRow
from icltheory.plotting.style import COLOURS, STYLE

# Inches a bar, a group's title, and the title with the axes' labels
_BAR, _GROUP, _FRAME = 0.2, 0.3, 1.1
_OURS, _SLOWER = COLOURS[1], COLOURS[2]


def draw(results: Results) -> Any:
    """Draws every row that has a ratio or a floor as bars, on two logarithmic axes.

    Returns:
        The matplotlib figure.
    """
    import matplotlib.pyplot as plt

    groups = drawn(results.rows)
    bars = sum(len(rows) for _, rows in groups)
    height = _FRAME + _BAR * bars + _GROUP * len(groups)
    style = {**STYLE, "figure.constrained_layout.use": False, "axes.grid.axis": "x"}
    with plt.rc_context({**style, "font.size": 9, "figure.dpi": 100}):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(9.0, height), sharey=True, width_ratios=(2, 1)
        )
        _fill(left, right, groups)
        for side in (left, right):
            side.axvline(1.0, color="black", linewidth=0.8, zorder=0)
            side.tick_params(axis="y", length=0)
            side.spines["left"].set_visible(False)
            side.patch.set_visible(False)
        figure.suptitle(f"{results.title}{results.warning}", fontsize=9)
        figure.tight_layout(rect=(0, 0, 1, 1 - 0.1 / height))
    return figure


def _fill(left, right, groups) -> None:
    """Bars, labels and scales."""
    shown = [row for _, rows in groups for row in rows]
    # Bars of the right axis begin at its left end; those of the left one at 1.
    start = min([row.share_of_floor or 1.0 for row in shown], default=1.0) / 2
    ticks = _bars(left, right, groups, start)
    left.set_yticks(list(ticks.values()), list(ticks), fontsize=8)
    left.set_ylim(max(ticks.values(), default=0) + 1, -0.2)
    _axis(left, [row.ratio for row in shown])
    right.set(xscale="log", xlim=(start, 8))
    left.set_xlabel("times faster than the alternative; our time")
    right.set_xlabel("share of the hardware limit")


def drawn(rows: tuple[BenchmarkRow, ...]) -> list[tuple[str, list[BenchmarkRow]]]:
    """Groups of the rows that have something to draw."""
    with_bars = [r for r in rows if r.ratio is not None or r.share_of_floor is not None]
    return list(_table.grouped(with_bars))


def _bars(left, right, groups, start: float) -> dict[str, float]:
    """Draws all bars; returns where each label stands, from the top down."""
    from matplotlib.transforms import blended_transform_factory

    ticks, at = {}, 0.0
    for number, (group, rows) in enumerate(groups):
        at += 1.4
        others = {row.alternative for row in rows if row.ratio is not None}
        against = f", against {others.pop()}" if len(others) == 1 else ""
        # From the left edge of the figure, over both axes.
        place = blended_transform_factory(left.figure.transFigure, left.transData)
        bold = {"fontsize": 8, "fontweight": "bold", "va": "center", "zorder": 5}
        text = left.text(0.01, at - 0.85, f"{group}{against}", transform=place, **bold)
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1})
        text.set_in_layout(False)
        for row in rows:
            # The same name in two groups needs two ticks: a space of no width
            ticks[f"{row.name} ({row.precision})" + "\u200b" * number] = at
            _bar(left, at, row.ratio, 1.0, _of(row, against))
            _bar(right, at, row.share_of_floor, start, "")
            at += 1
    return ticks


def _of(row: BenchmarkRow, against: str) -> str:
    wrong = "WRONG ANSWER, " if row.wrong else ""
    other = "" if against else f"{row.alternative}"
    return f" x {wrong}{other}; {_table.duration(row.ours_s)}".replace(" ;", ";")


def _bar(axes, at, value: float | None, start: float, more: str) -> None:
    """A bar with its number, and more text, behind its right end."""
    if value is None or not value > 0:
        return
    colour = _SLOWER if start == 1.0 and value < 1 else _OURS
    axes.barh(at, value - start, left=start, height=0.75, color=colour)
    text = f" {_table.number(value)}{more}"
    drawn = axes.text(max(value, start), at, text, va="center", fontsize=8)
    drawn.set_in_layout(False)


def _axis(axes, values: list[float | None]) -> None:
    """A logarithmic axis that holds all values and room for their text."""
    from matplotlib.ticker import FixedLocator, NullLocator

    known = [value for value in values if value is not None and value > 0]
    low, high = min([*known, 1.0]) / 1.3, max([*known, 2.0])
    # About a third of the axis is for the text behind the longest bar.
    axes.set(xscale="log", xlim=(low, high * (high / low) ** 0.4))
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    axes.xaxis.set_major_locator(FixedLocator(decades[decades <= 1.5 * high].tolist()))
    axes.xaxis.set_minor_locator(NullLocator())
