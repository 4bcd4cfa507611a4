"""The figure: speed-up over the alternative, and share of the hardware limit."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import _table
from benchmarks._results import Results
from benchmarks._suite import BenchmarkRow
from icltheory.plotting.style import COLOURS, STYLE

# Heights in inches of one benchmark, and of the title with the axis labels.
_GROUP, _FRAME = 0.5, 1.2
_OURS, _SLOWER, _WRONG = COLOURS[1], COLOURS[2], COLOURS[4]


def draw(results: Results) -> Any:
    """Draws each speed-up and each share of the hardware limit as a dot, by benchmark.

    Returns:
        The matplotlib figure.
    """
    import matplotlib.pyplot as plt

    groups = drawn(results.rows)
    height = _FRAME + _GROUP * max(len(groups), 1)
    with plt.rc_context({**STYLE, "font.size": 9, "figure.dpi": 100}):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(9.0, height), sharey=True, width_ratios=(2, 1)
        )
        for place, (_, rows) in enumerate(groups):
            _dots(left, place, rows, "ratio")
            _dots(right, place, rows, "share_of_floor")
        left.set_yticks(
            range(len(groups)), [_label(*group) for group in groups], fontsize=8
        )
        left.set_ylim(max(len(groups), 1) - 0.5, -0.5)
        for axes, label in (
            (left, "times faster than the alternative"),
            (right, "share of the hardware limit"),
        ):
            axes.axvline(1.0, color="black", linewidth=0.8, zorder=0)
            axes.tick_params(axis="y", length=0)
            _axis(axes, [r for _, rows in groups for r in rows], label)
        figure.suptitle(
            f"{results.title}{results.warning}\none dot per case; orange: slower than "
            "the alternative",
            fontsize=9,
        )
    return figure


def drawn(rows: tuple[BenchmarkRow, ...]) -> list[tuple[str, list[BenchmarkRow]]]:
    """Returns the groups of rows that have a ratio or a share to draw."""
    shown = [r for r in rows if r.ratio is not None or r.share_of_floor is not None]
    return list(_table.grouped(shown))


def _label(group: str, rows: Sequence[BenchmarkRow]) -> str:
    others = list(dict.fromkeys(r.alternative for r in rows if r.ratio is not None))
    against = f", against {' or '.join(others)}" if others else ""
    return "\n".join(textwrap.wrap(f"{group}{against}", 52))


def _dots(axes, place: int, rows: Sequence[BenchmarkRow], value: str) -> None:
    """Draws one benchmark's dots, with the range of its ratios as text."""
    known = [(getattr(row, value), row) for row in rows]
    known = [(x, row) for x, row in known if x is not None and x > 0]
    for x, row in known:
        slower = value == "ratio" and x < 1
        colour = _WRONG if row.wrong else _SLOWER if slower else _OURS
        marker = "X" if row.wrong else "o"
        axes.plot(x, place, marker, color=colour, alpha=0.6, markersize=7)
        if row.wrong:
            axes.annotate("WRONG ANSWER", (x, place), fontsize=7, color=colour)
    if known and value == "ratio":
        ends = dict.fromkeys(_table.number(end(x for x, _ in known)) for end in _ENDS)
        across = axes.get_yaxis_transform()
        text = " to ".join(ends) + " x"
        style = {"fontsize": 8, "va": "center", "ha": "right", "color": "0.35"}
        axes.text(1.0, place, text, transform=across, **style)


_ENDS = (min, max)


def _axis(axes, rows: Sequence[BenchmarkRow], label: str) -> None:
    """Sets a logarithmic axis that contains all values and leaves room for the text."""
    name = "ratio" if "faster" in label else "share_of_floor"
    values = [x for row in rows if (x := getattr(row, name)) is not None and x > 0]
    low, high = min([*values, 1.0]) / 1.5, max([*values, 1.0]) * 1.5
    room = (high / low) ** 0.45 if name == "ratio" else 1.0
    axes.set(xscale="log", xlabel=label, xlim=(low, high * room))
    decades = 10.0 ** np.arange(np.ceil(np.log10(low)), np.floor(np.log10(high)) + 1)
    axes.set_xticks(decades.tolist())
    axes.minorticks_off()
