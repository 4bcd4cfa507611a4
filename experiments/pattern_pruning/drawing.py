"""What pruning does to models of pattern tasks: neurons, entries, singular values."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from icltheory.plotting.style import COLOURS, STYLE, plain_log_axis

__all__ = [
    "PrunedLine",
    "errors_against_kept",
    "errors_against_pruned",
    "spectra_after_training",
]


class PrunedLine(NamedTuple):
    """One line of a panel.

    Attributes:
        x: Pruned or kept share.
        mean: Value at each share.
        low: Lower end of its interval, or ``None``.
        high: Upper end, or ``None``.
        colour: Index into ``COLOURS``.
        style: Style of the line, as matplotlib names it.
    """

    x: Any
    mean: Any
    low: Any = None
    high: Any = None
    colour: int = 0
    style: str = "-"


def errors_against_pruned(
    sizes: Any,
    panels: Mapping[tuple[str, str], Mapping[str, PrunedLine]],
    title: str,
    *,
    norm: str = r"$\|W_O(i, \cdot)\|$",
):
    """Draws the sorted norms of the neurons, and errors against what is pruned.

    Args:
        sizes: Norms of the neurons, ascending, ``(seeds, m)`` or
            ``(seeds, blocks, m)``, where a colour is a block.
        panels: Lines by label, for each (title, name of the values).
        title: What was pruned.
        norm: How the norms are called.

    Returns:
        The matplotlib figure.

    References:
        Li et al. 2024, Figures 14 and 15. Verified by
        ``tests/experiments/test_pattern_pruning.py``.
    """
    import matplotlib.pyplot as plt

    columns = -(-(1 + len(panels)) // 2)
    with plt.rc_context({**STYLE, "font.size": 9, "lines.linewidth": 1.5}):
        figure, grid = plt.subplots(
            2, columns, figsize=(4.2 * columns, 7.2), squeeze=False
        )
        _draw_sizes(grid.flat[0], np.asarray(sizes), norm)
        for axes in grid.flat[1 + len(panels) :]:
            axes.set_visible(False)
        for axes, ((name, values), lines) in zip(
            grid.flat[1:], panels.items(), strict=False
        ):
            _draw_lines(axes, lines)
            axes.set(title=name, xlabel="pruned fraction R of the neurons")
            axes.set_ylabel(values)
            _start_at_zero(axes, lines)
            axes.legend(fontsize=7, loc="upper left")
        figure.suptitle(title)
    return figure


def errors_against_kept(
    rows: Mapping[str, Mapping[str, Mapping[str, PrunedLine]]], title: str, ylabel: str
):
    """Draws errors against the kept share of parameters, a row for each test.

    Args:
        rows: Panels of each row by title, with their lines by label.
        title: What is compared.
        ylabel: Name of the values.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Figure 2, and Li et al. 2024, Figure 14, on one axis. Verified
        by ``tests/experiments/test_pattern_pruning.py``.
    """
    import matplotlib.pyplot as plt

    columns = max(len(panels) for panels in rows.values())
    with plt.rc_context({**STYLE, "font.size": 9, "lines.linewidth": 1.5}):
        figure, grid = plt.subplots(
            len(rows),
            columns,
            figsize=(3.1 * columns, 2.9 * len(rows) + 0.9),
            sharex=True,
            sharey=True,
            squeeze=False,
        )
        entries: dict[str, Any] = {}
        for row, (name, panels) in zip(grid, rows.items(), strict=True):
            row[0].set_ylabel(f"{ylabel}\n{name}")
            for axes, (module, lines) in zip(row, panels.items(), strict=False):
                entries |= _draw_lines(axes, lines, marker="o")
                axes.set(title=module, xscale="log")
                axes.set_ylim(bottom=-0.02)
        for axes in grid[-1]:
            plain_x_axis(axes)
            axes.set_xlabel("kept share of the parameters")
        figure.legend(
            entries.values(), entries, loc="outside lower center", ncols=len(entries)
        )
        figure.suptitle(title)
    return figure


def spectra_after_training(
    spectra: Mapping[str, Any], ranks: Mapping[str, int], title: str
):
    """Draws singular values of products of weights, with the rank that is expected.

    Args:
        spectra: Singular values, descending, ``(seeds, n)``, by product.
        ranks: The expected number of large ones, by product.
        title: What the weights are.

    Returns:
        The matplotlib figure.

    References:
        Li et al. 2024, Propositions 1 and 2. Verified by
        ``tests/experiments/test_pattern_pruning.py``.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            1, len(spectra), figsize=(4.4 * len(spectra), 3.6), squeeze=False
        )
        for axes, (name, values) in zip(grid.flat, spectra.items(), strict=True):
            values = np.asarray(values)
            shown = values[:, values.min(0) > 1e-6 * values.max()]
            index = np.arange(1, shown.shape[1] + 1)
            for colour, row in enumerate(shown, start=1):
                axes.plot(index, row, "o", color=COLOURS[colour % 7], markersize=3)
            axes.axvline(ranks[name] + 0.5, color="grey", linestyle=":")
            axes.annotate(
                f"rank {ranks[name]}",
                (ranks[name] + 1, shown.max()),
                color="grey",
                va="top",
            )
            plain_log_axis(axes.yaxis, shown.max() / shown.min())
            axes.set(title=name, xlabel="index", ylabel="singular value")
        figure.suptitle(title)
    return figure


def plain_x_axis(axes) -> None:
    """Labels of a logarithmic axis of shares, as numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.xaxis.set_major_locator(FixedLocator([0.03, 0.1, 0.3, 1.0]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _draw_lines(axes, lines: Mapping[str, PrunedLine], marker: str = "") -> dict:
    drawn = {}
    for label, line in lines.items():
        colour = COLOURS[line.colour % len(COLOURS)]
        (drawn[label],) = axes.plot(
            line.x,
            line.mean,
            line.style,
            marker=marker,
            markersize=3,
            color=colour,
            label=label,
            alpha=1.0 if line.style == "-" else 0.7,
        )
        if line.low is not None:
            axes.fill_between(
                line.x, line.low, line.high, color=colour, alpha=0.2, linewidth=0
            )
    return drawn


def _start_at_zero(axes, lines: Mapping[str, PrunedLine]) -> None:
    """Errors start at 0; differences may be below."""
    if all(np.min(line.mean) >= 0 for line in lines.values()):
        axes.set_ylim(bottom=0)


def _draw_sizes(axes, sizes: np.ndarray, norm: str) -> None:
    blocks, m = sizes.shape[1:] if sizes.ndim == 3 else (0, sizes.shape[-1])
    index = np.arange(1, m + 1)
    for place, row in enumerate(sizes.reshape(-1, m)):
        small = row < row.max() / 2
        shade = COLOURS[(1 + (place % blocks if blocks else place)) % len(COLOURS)]
        label = f"block {place + 1}" if place < blocks else None
        axes.plot(index, row, "o", color=shade, markersize=3, markerfacecolor="none")
        axes.plot(index[small], row[small], "o", color=shade, markersize=3, label=label)
    count = (sizes < sizes.max(-1, keepdims=True) / 2).sum(-1).ravel()
    shown = f"{count.min()} to {count.max()}" if blocks else ", ".join(map(str, count))
    axes.set(title=f"sorted norms: {shown} small of {m}", xlabel="neuron", ylabel=norm)
    axes.set_ylim(bottom=0)
    if blocks:
        axes.legend(fontsize=7, loc="upper left")
