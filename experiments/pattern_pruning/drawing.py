"""Figures of pruned models of pattern tasks: neurons, entries, singular values."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from experiments._frame.looks import key, name_ends, page
from icltheory.plotting.style import COLOURS, plain_log_axis

__all__ = [
    "PrunedLine",
    "errors_against_kept",
    "errors_against_pruned",
    "spectra_after_training",
]


_MARKERS = "*osD^vP"


class PrunedLine(NamedTuple):
    """One line of a panel.

    Attributes:
        x: Pruned or kept share.
        mean: Value at each share.
        low: Lower end of its interval, or ``None``.
        high: Upper end, or ``None``.
        colour: Index into ``COLOURS``.
        style: Style of the line, as matplotlib names it.
        kind: What a line of that style is, for the legend; nothing if empty.
    """

    x: Any
    mean: Any
    low: Any = None
    high: Any = None
    colour: int = 0
    style: str = "-"
    kind: str = ""


def errors_against_pruned(
    panels: Mapping[tuple[str, str], Mapping[str, PrunedLine]],
    title: str,
    sizes: Any = None,
    *,
    norm: str = r"$\|W_O(i, \cdot)\|$",
):
    """Draws errors against the pruned share, with the sorted norms of the neurons.

    Args:
        panels: Lines by label, for each (title, name of the values).
        title: What was pruned.
        sizes: Norms of the neurons, ascending, ``(..., m)``, or ``None``.
        norm: How the norms are called.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: If there is no panel.

    References:
        Li et al. 2024, Figures 14 and 15. Verified by
        ``tests/experiments/test_pattern_pruning.py``.
    """
    titles = [name for name, _ in panels]
    if sizes is not None:
        sizes = np.asarray(sizes)
        titles.insert(0, _size_title(sizes))
    with page(titles, 2, title, 2.6) as (shown, entries):
        if sizes is not None:
            _draw_sizes(shown[0], sizes, norm)
        for axes, ((_, values), lines) in zip(
            shown[len(titles) - len(panels) :], panels.items(), strict=True
        ):
            _draw_lines(axes, lines)
            axes.set(xlabel="pruned fraction R of the neurons", ylabel=values)
            _start_at_zero(axes, lines)
            name_ends(axes, [_end(*item) for item in lines.items() if not item[1].kind])
            entries |= {
                line.kind: key(linestyle=line.style)
                for line in lines.values()
                if line.kind
            }
    return shown[0].figure


def _end(label: str, line: PrunedLine) -> tuple[float, str, str]:
    return float(np.asarray(line.mean)[-1]), label, COLOURS[line.colour % len(COLOURS)]


def errors_against_kept(
    panels: Mapping[str, Mapping[str, PrunedLine]], title: str, ylabel: str
):
    """Draws errors against the kept share of parameters, one panel per matrix.

    Args:
        panels: Lines by label, for each panel by title.
        title: What is compared.
        ylabel: Name of the values.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: If there is no panel.

    References:
        Yao et al. 2024, Figure 2, and Li et al. 2024, Figure 14, on one axis. Verified
        by ``tests/experiments/test_pattern_pruning.py``.
    """
    columns = 2 if len(panels) == 4 else 3
    with page(panels, columns, title, 2.5, sharey=True) as (shown, entries):
        for axes, lines in zip(shown, panels.values(), strict=True):
            entries |= _draw_lines(axes, lines, marked=True)
            axes.set(xlabel="kept share of parameters (log)", xscale="log")
            axes.set_ylim(-0.02, 1.02)
            plain_x_axis(axes)
        for axes in shown[::columns]:
            axes.set_ylabel(ylabel)
    return shown[0].figure


def spectra_after_training(
    spectra: Mapping[str, Any], ranks: Mapping[str, int], title: str
):
    """Draws singular values of products of weights, with the expected rank.

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
    with page(spectra, 2, title, 3.0) as (shown, _):
        for axes, (name, values) in zip(shown, spectra.items(), strict=True):
            values = np.asarray(values)
            kept = values[:, values.min(0) > 1e-6 * values.max()]
            index = np.arange(1, kept.shape[1] + 1)
            for order, row in enumerate(kept):
                look = {"color": COLOURS[order % len(COLOURS)], "markersize": 3}
                axes.plot(index, row, "osD^v"[order % 5], **look)
            axes.axvline(ranks[name] + 0.5, color="grey", linestyle=":")
            place = (ranks[name] + 1, kept.max())
            axes.annotate(f"rank {ranks[name]}", place, color="0.35", va="top")
            plain_log_axis(axes.yaxis, kept.max() / kept.min())
            axes.set(xlabel="index", ylabel="singular value")
    return shown[0].figure


def plain_x_axis(axes) -> None:
    """Labels a logarithmic axis of shares with plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.xaxis.set_major_locator(FixedLocator([0.03, 0.1, 0.3, 1.0]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _draw_lines(
    axes, lines: Mapping[str, PrunedLine], marked: bool = False
) -> dict[str, Any]:
    """Draws lines and returns them by label."""
    drawn = {}
    for label, line in lines.items():
        look = {"color": COLOURS[line.colour % len(COLOURS)], "label": f"_{label}"}
        if marked:
            look |= {"marker": _MARKERS[line.colour % len(_MARKERS)], "markersize": 4}
        (drawn[label],) = axes.plot(line.x, line.mean, line.style, **look)
        if line.low is not None:
            band = {"color": look["color"], "alpha": 0.2, "linewidth": 0}
            axes.fill_between(line.x, line.low, line.high, **band)
    return drawn


def _start_at_zero(axes, lines: Mapping[str, PrunedLine]) -> None:
    """Starts the vertical axis at zero unless values are negative."""
    if all(np.min(line.mean) >= 0 for line in lines.values()):
        axes.set_ylim(bottom=0)


def _draw_sizes(axes, sizes: np.ndarray, norm: str) -> None:
    """Draws sorted norms in black, with small neurons as hollow markers."""
    m = sizes.shape[-1]
    index = np.arange(1, m + 1)
    for row in sizes.reshape(-1, m):
        small = row < row.max() / 2
        mark = {"color": COLOURS[0], "linestyle": "", "alpha": 0.6}
        axes.plot(index[~small], row[~small], marker=".", markersize=4, **mark)
        hollow = {"marker": "o", "markersize": 5, "markerfacecolor": "none"}
        axes.plot(index[small], row[small], **mark, **hollow)
    axes.set(xlabel="neuron, by norm", ylabel=norm)
    axes.set_ylim(bottom=0)


def _size_title(sizes: np.ndarray) -> str:
    count = (sizes < sizes.max(-1, keepdims=True) / 2).sum(-1)
    return (
        f"{count.min()} to {count.max()} of {sizes.shape[-1]} neurons are small (rings)"
    )
