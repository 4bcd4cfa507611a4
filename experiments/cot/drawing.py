"""Figures of chain of thought: errors and needed lengths of prompts, attention."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from experiments._frame.looks import key, name_ends, page
from icltheory.plotting.style import COLOURS, colours, plain_log_axis

__all__ = [
    "LengthPanel",
    "LengthSeries",
    "NeedPanel",
    "attention_along_training",
    "errors_against_length",
    "lengths_that_suffice",
]

_KINDS = {
    "dots": {"linestyle": "-", "marker": "o", "markersize": 4},
    "dashed": {"linestyle": "--", "linewidth": 1.1},
    "dotted": {"linestyle": ":", "linewidth": 1.3},
}


class LengthSeries(NamedTuple):
    """One curve against prompt length.

    Attributes:
        mean: Its value at each length; zeros and NaN are left out of a log axis.
        half: Half the width of its interval, or ``None``.
        kind: Measured dots, or a dashed or dotted line.
        colour: Index into ``COLOURS``.
        name: What stands at its right end; nothing if empty.
    """

    mean: Any
    half: Any = None
    kind: Literal["dots", "dashed", "dotted"] = "dots"
    colour: int = 0
    name: str = ""


class LengthPanel(NamedTuple):
    """One panel of curves against prompt length.

    Attributes:
        lengths: Prompt lengths.
        series: What is drawn.
        limit: A horizontal line, or ``None``.
    """

    lengths: Any
    series: Sequence[LengthSeries]
    limit: float | None = None


class NeedPanel(NamedTuple):
    """One panel of needed prompt lengths against a quantity of the task.

    Attributes:
        values: The quantity.
        lengths: Measured lengths by label, with NaN where the error is not reached.
        guides: What the length should be proportional to, by label; each is drawn
            through the last measured length of the first entry.
    """

    values: Any
    lengths: Mapping[str, Any]
    guides: Mapping[str, Any]


def errors_against_length(
    panels: Mapping[str, LengthPanel],
    title: str,
    kinds: Mapping[str, str],
    *,
    ylabel: str,
    columns: int = 3,
    floor: float = 1e-4,
):
    """Draws errors against prompt length on logarithmic axes.

    A triangle at the lower end stands for a measured error of 0.

    Args:
        panels: Panels by title.
        title: What was measured.
        kinds: What each kind of series is, for the legend.
        ylabel: Name of the error.
        columns: Panels in a row.
        floor: Lower end of the axis.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: If there is no panel.

    References:
        Li et al. (2025), arXiv 2410.02167, Figures 17 to 19. Verified by
        ``tests/experiments/test_cot.py``.
    """
    with page(panels, columns, title, 2.6, sharey=True) as (shown, entries):
        for axes, panel in zip(shown, panels.values(), strict=True):
            for series in panel.series:
                _draw(axes, np.asarray(panel.lengths), series, floor)
            if panel.limit:
                axes.axhline(panel.limit, color="grey", linewidth=0.9, zorder=0)
            _length_axis(axes, panel.lengths)
        plain_log_axis(shown[0].yaxis, 1.0 / floor / 20)
        shown[0].set_ylim(floor / 1.3, 1.6)
        for axes in shown[::columns]:
            axes.set_ylabel(ylabel)
        for axes, panel in zip(shown, panels.values(), strict=True):
            name_ends(axes, _ends(panel, floor))
        entries |= {label: key(**_KINDS[kind]) for kind, label in kinds.items()}
        entries["no error in the test"] = key(linestyle="", marker="v", markersize=4)
    return shown[0].figure


def _draw(axes, lengths, series: LengthSeries, floor: float) -> None:
    mean = np.array(series.mean, float)
    none = mean <= 0
    mean[~(mean > 0)] = np.nan
    look = {"color": COLOURS[series.colour % len(COLOURS)], **_KINDS[series.kind]}
    axes.plot(lengths, mean, **look)
    if series.kind == "dots":
        # Later markers are smaller, since they may coincide with earlier ones.
        size = max(3, 9 - 2 * series.colour)
        place = np.full(none.sum(), floor)
        axes.plot(lengths[none], place, "v", color=look["color"], markersize=size)
    if series.half is not None:
        half = np.asarray(series.half, float)
        # An error bar that reaches 0 has no lower end on a logarithmic axis.
        bars = np.stack([np.minimum(half, mean * (1 - 1e-6)), half])
        bar = {"color": look["color"], "capsize": 2, "linewidth": 0.9}
        axes.errorbar(lengths, mean, bars, fmt="none", **bar)


def _ends(panel: LengthPanel, floor: float) -> list[tuple[float, str, str]]:
    """Returns the labels at the curves' last values and at the limit."""
    ends = [
        (max(float(np.asarray(s.mean)[-1]), floor), s.name, COLOURS[s.colour % 7])
        for s in panel.series
        if s.name
    ]
    return [*ends, (panel.limit, "limit", "0.4")] if panel.limit else ends


def _length_axis(axes, lengths) -> None:
    axes.set_xscale("log")
    named = [lengths[-1]]
    for length in reversed(lengths):
        if named[-1] >= 1.35 * length:  # labels would otherwise overlap
            named.append(length)
    axes.set_xticks(named, [f"{length:g}" for length in named])
    axes.minorticks_off()
    axes.set_xlabel("examples in the prompt (log scale)")


def lengths_that_suffice(panels: Mapping[str, NeedPanel], title: str, ylabel: str):
    """Draws the prompt length at which an error is reached, on log-log axes.

    Args:
        panels: One panel a quantity, by its name.
        title: What was measured.
        ylabel: Which error is reached.

    Returns:
        The matplotlib figure.

    References:
        Li et al. (2025), arXiv 2410.02167, Theorem 5. Verified by
        ``tests/experiments/test_cot.py``.
    """
    with page([""] * len(panels), 3, title, 3.0) as (shown, entries):
        for axes, (name, panel) in zip(shown, panels.items(), strict=True):
            entries |= _need_panel(axes, panel)
            axes.set_xlabel(name)
        shown[0].set_ylabel(ylabel)
    return shown[0].figure


def _need_panel(axes, panel: NeedPanel) -> dict[str, Any]:
    """Draws measured lengths and guides; returns the entries of the legend."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    values = np.asarray(panel.values, float)
    axes.set_xscale("log")
    entries = {}
    for order, (label, lengths) in enumerate(panel.lengths.items()):
        style = "o-" if order == 0 else "D--"
        colour = COLOURS[(1 + order) % len(COLOURS)]
        entries[label] = axes.plot(values, lengths, style, color=colour, ms=4)[0]
    known = [np.asarray(x, float) for x in panel.lengths.values()]
    shown = np.concatenate(known)
    shown = shown[np.isfinite(shown)]
    anchor = np.flatnonzero(np.isfinite(known[0]))
    for order, label in enumerate(panel.guides if len(anchor) else ()):
        guide = np.asarray(panel.guides[label], float)
        guide = guide * known[0][anchor[-1]] / guide[anchor[-1]]
        kind = (":", "-.")[order % 2]
        entries[label] = axes.plot(values, guide, kind, color="grey", linewidth=1)[0]
        shown = np.append(shown, guide)
    if len(shown):
        plain_log_axis(axes.yaxis, shown.max() / shown.min())
    axes.xaxis.set_major_locator(FixedLocator(values.tolist()))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    return entries


def attention_along_training(
    iterations: Any,
    masses: Mapping[str, Any],
    stages: Mapping[str, float],
    title: str,
):
    """Draws the attention on four classes of columns over training steps.

    Args:
        iterations: Steps of descent at each record.
        masses: Attention ``(seeds, T)`` by class; drawn as mean and range.
        stages: Iterations that end a stage, drawn as vertical lines, by their names.
        title: What was trained.

    Returns:
        The matplotlib figure.

    References:
        Li et al. (2025), arXiv 2410.02167, Figure 20. Verified by
        ``tests/experiments/test_cot.py``.
    """
    with page([title], 1, "", 3.3) as ((axes,), _):
        ends = []
        for colour, (label, values) in zip(colours(1), masses.items(), strict=False):
            values = np.asarray(values, float)
            mean, band = values.mean(axis=0), (values.min(axis=0), values.max(axis=0))
            axes.plot(iterations, mean, color=colour)
            axes.fill_between(iterations, *band, color=colour, alpha=0.2, linewidth=0)
            ends.append((float(mean[-1]), label, colour))
        for place, (name, stage) in enumerate(stages.items()):
            axes.axvline(stage, color="grey", linestyle=":", linewidth=1)
            text = {"fontsize": 8, "color": "0.35", "va": "top"}
            shown = axes.text(stage, 0.99 - 0.045 * place, f" {name}", **text)
            shown.set_bbox({"facecolor": "white", "linewidth": 0, "pad": 0.5})
        axes.set(xlabel="iteration", ylabel="share of the attention", ylim=(0, 1))
        axes.set_xlim(0, np.max(iterations))
        name_ends(axes, ends)
    return axes.figure
