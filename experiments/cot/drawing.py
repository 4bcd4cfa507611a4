"""Chain of thought: errors against prompt length, lengths that suffice, attention."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from icltheory.plotting.style import COLOURS, STYLE, colours, plain_log_axis

__all__ = [
    "LengthPanel",
    "LengthSeries",
    "NeedPanel",
    "attention_along_training",
    "errors_against_length",
    "lengths_that_suffice",
]

_SMALL = {**STYLE, "font.size": 9, "lines.linewidth": 1.4}


class LengthSeries(NamedTuple):
    """One thing that is drawn against prompt length.

    Attributes:
        mean: Its value at each length; zeros and NaN are left out of a log axis.
        half: Half the width of its interval, or ``None``.
        kind: Measured dots, a line of theory, a dashed or dotted one, or crosses.
        colour: Index into ``COLOURS``.
    """

    mean: Any
    half: Any = None
    kind: Literal["dots", "line", "dashed", "dotted", "crosses"] = "dots"
    colour: int = 0


class LengthPanel(NamedTuple):
    """One panel.

    Attributes:
        lengths: Prompt lengths.
        series: What is drawn, by label.
        limit: A horizontal line, or ``None``.
    """

    lengths: Any
    series: Mapping[str, LengthSeries]
    limit: float | None = None


class NeedPanel(NamedTuple):
    """Prompt lengths that reach an error, against a quantity of the task.

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
    *,
    ylabel: str,
    columns: int = 3,
    floor: float = 1e-4,
    shared_legend: bool = True,
):
    """Draws errors against prompt length on a logarithmic axis.

    Args:
        panels: Panels by title.
        title: What was measured.
        ylabel: Name of the error.
        columns: Panels in a row.
        floor: Lower end of the axis.
        shared_legend: One legend for all panels, below them; else one in each panel,
            of the series whose label does not begin with an underscore.

    Returns:
        The matplotlib figure.

    References:
        Li et al. (2025), arXiv 2410.02167, Figures 17 to 19. Verified by
        ``tests/experiments/test_cot.py``.
    """
    import matplotlib.pyplot as plt

    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    with plt.rc_context(_SMALL):
        figure, grid = plt.subplots(
            rows,
            columns,
            figsize=(3.7 * columns, 3.1 * rows + 0.7),
            sharey=True,
            squeeze=False,
        )
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        entries: dict[str, Any] = {}
        for axes, (name, panel) in zip(grid.flat, panels.items(), strict=False):
            for label, series in panel.series.items():
                drawn = _draw(axes, np.asarray(panel.lengths), series)
                if not label.startswith("_"):
                    drawn.set_label(label)
                    entries.setdefault(label, drawn)
            if panel.limit:
                line = axes.axhline(panel.limit, color="grey", linewidth=0.9, zorder=0)
                entries.setdefault("limit of ICL (Theorem 6)", line)
            axes.set(title=name, xlabel="examples in the prompt")
            if not shared_legend:
                axes.legend(fontsize=8, loc="upper right")
        plain_log_axis(grid[0, 0].yaxis, 1.0 / floor / 20)
        grid[0, 0].set_ylim(floor, 1.6)
        for axes in grid[:, 0]:
            axes.set_ylabel(ylabel)
        if shared_legend:
            figure.legend(
                entries.values(), entries, loc="outside lower center", ncols=4
            )
        figure.suptitle(title)
    return figure


def _draw(axes, lengths, series: LengthSeries):
    mean = np.array(series.mean, float)
    mean[~(mean > 0)] = np.nan
    colour = COLOURS[series.colour % len(COLOURS)]
    if series.kind == "crosses":
        return axes.plot(lengths, mean, "x", color=colour, ms=7, mew=1.5, zorder=6)[0]
    style = {"dots": "o-", "line": "-", "dashed": "--", "dotted": ":"}[series.kind]
    thin = 1.0 if series.kind in ("dashed", "dotted") else 1.4
    line = axes.plot(lengths, mean, style, color=colour, ms=4, linewidth=thin)[0]
    if series.half is not None:
        half = np.asarray(series.half, float)
        # A bar that reaches 0 has no lower end on a logarithmic axis.
        below = np.minimum(half, mean * (1 - 1e-6))
        bars = np.stack([below, half])
        axes.errorbar(
            lengths, mean, bars, fmt="none", color=colour, capsize=2, linewidth=0.9
        )
    return line


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
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    with plt.rc_context(_SMALL):
        figure, grid = plt.subplots(
            1, len(panels), figsize=(3.7 * len(panels), 3.9), squeeze=False
        )
        entries: dict[str, Any] = {}
        for axes, (name, panel) in zip(grid.flat, panels.items(), strict=True):
            values = np.asarray(panel.values, float)
            axes.set_xscale("log")
            for order, (label, lengths) in enumerate(panel.lengths.items()):
                style = "o-" if order == 0 else "D--"
                colour = COLOURS[(1 + order) % len(COLOURS)]
                drawn = axes.plot(values, lengths, style, color=colour, ms=4)
                entries.setdefault(label, drawn[0])
            known = [np.asarray(x, float) for x in panel.lengths.values()]
            shown = np.concatenate(known)
            shown = shown[np.isfinite(shown)]
            anchor = np.flatnonzero(np.isfinite(known[0]))
            for order, label in enumerate(panel.guides if len(anchor) else ()):
                guide = np.asarray(panel.guides[label], float)
                guide = guide * known[0][anchor[-1]] / guide[anchor[-1]]
                kind = (":", "-.")[order % 2]
                drawn = axes.plot(values, guide, kind, color="grey", linewidth=1)
                entries.setdefault(label, drawn[0])
                shown = np.append(shown, guide)
            if len(shown):
                plain_log_axis(axes.yaxis, shown.max() / shown.min())
            axes.xaxis.set_major_locator(FixedLocator(values.tolist()))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set(xlabel=name)
        grid[0, 0].set_ylabel(ylabel)
        figure.legend(
            entries.values(), entries, loc="outside lower center", ncols=len(entries)
        )
        figure.suptitle(title)
    return figure


def attention_along_training(
    iterations: Any, masses: Mapping[str, Any], stages: Sequence[float], title: str
):
    """Draws the attention on four classes of columns along training.

    Args:
        iterations: Steps of descent at each record.
        masses: Attention ``(seeds, T)`` by class; drawn as mean and range.
        stages: Iterations that end a stage, drawn as vertical lines.
        title: What was trained.

    Returns:
        The matplotlib figure.

    References:
        Li et al. (2025), arXiv 2410.02167, Figure 20. Verified by
        ``tests/experiments/test_cot.py``.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 4.4))
        for colour, (label, values) in zip(colours(1), masses.items(), strict=False):
            values = np.asarray(values, float)
            axes.plot(iterations, values.mean(axis=0), color=colour, label=label)
            axes.fill_between(
                iterations,
                values.min(axis=0),
                values.max(axis=0),
                color=colour,
                alpha=0.2,
                linewidth=0,
            )
        for stage in stages:
            axes.axvline(stage, color="grey", linestyle=":", linewidth=1)
        axes.set(xlabel="iteration", ylabel="attention on the examples", ylim=(0, 1))
        axes.set_xlim(0, np.max(iterations))
        figure.legend(
            *axes.get_legend_handles_labels(), loc="outside lower center", ncols=2
        )
        figure.suptitle(title)
    return figure
