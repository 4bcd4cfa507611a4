"""Accuracies of language models against rates, and before and after Algorithm 1."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory.plotting import Curve, draw_curve, panel_grid
from icltheory.plotting.grid import SMALL, entries_of, legend_below, reference_lines
from icltheory.plotting.style import COLOURS, plain_log_axis

__all__ = [
    "AccuracyPanel",
    "BeforeAfter",
    "accuracy_against_rate",
    "algorithm1_gains",
    "norms_beside_accuracy",
    "search_cost",
]

_LINES = {"unpruned": ("--", "0.25"), "majority class": (":", "#E69F00")}
_CHANCE = ("chance", ("-.", "0.5"))


class AccuracyPanel(NamedTuple):
    """One panel of accuracies against the clipping rate.

    Attributes:
        rates: The clipping rates, one place each whatever their distance.
        curves: One curve a layer over the rates, with its interval.
        baseline: Accuracy of the model as it is.
        majority: Accuracy of always answering the commonest class.
    """

    rates: Sequence[float | int]
    curves: Mapping[str, Curve]
    baseline: float | None = None
    majority: float | None = None


class BeforeAfter(NamedTuple):
    """Test accuracy without and with what Algorithm 1 chose.

    Attributes:
        before: Value, low and high of the model as it is.
        after: Value, low and high of the pruned model.
        could_be_chance: Whether the paired test leaves the difference to chance.
        note: What was chosen, such as a layer, a rate and a p-value.
        majority: Accuracy of always answering the commonest class.
    """

    before: tuple[float, float, float]
    after: tuple[float, float, float]
    could_be_chance: bool
    note: str = ""
    majority: float | None = None


def accuracy_against_rate(
    panels: Mapping[str, AccuracyPanel],
    title: str,
    columns: int = 4,
    ylabel: str = "accuracy",
):
    """Draws the accuracy against the clipping rate, one curve a layer, with bands.

    A star marks the best rate of a layer where it lies above the unpruned model, the
    smallest of equals.

    Args:
        panels: What each panel shows, by its title, such as a task and a module.
        title: What was measured.
        columns: Panels in a row.
        ylabel: Name of the accuracy.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Figures 1 and 2. Verified by
        ``tests/experiments/test_accuracy_figures.py``.
    """
    from matplotlib.lines import Line2D

    star = Line2D([], [], color="k", marker="*", markersize=9, linestyle="")
    with panel_grid(panels, columns, title, (3.3, 2.7)) as (figure, shown, entries):
        for axes, panel in zip(shown, panels.values(), strict=True):
            reference = np.inf if panel.baseline is None else panel.baseline
            colours = _depth_colours(panel.curves)
            for (label, curve), colour in zip(
                panel.curves.items(), colours, strict=True
            ):
                draw_curve(axes, curve, label, colour, marker="o", markersize=3)
                mean = np.asarray(curve.mean, float)
                if np.isfinite(mean).any() and np.nanmax(mean) > reference:
                    best = int(np.nanargmax(mean))
                    axes.plot(best, mean[best], "*", markersize=9, color=colour)
                    entries["best, where above the unpruned"] = star
            values = (panel.baseline, panel.majority)
            reference_lines(axes, zip(_LINES.items(), values, strict=True))
            _rate_ticks(axes, panel.rates)
        figure.supylabel(ylabel)
    return figure


def algorithm1_gains(
    panels: Mapping[str, Mapping[str, BeforeAfter]],
    title: str,
    xlabel: str = "accuracy on the test set",
):
    """Draws accuracies before and after Algorithm 1, and which gains may be chance.

    A filled dot is a difference that the paired test tells from chance, a hollow one is
    not. The note stands at the right.

    Args:
        panels: For each module, or model and module, the pair of each task.
        title: What was measured.
        xlabel: Name of the accuracy.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Figure 4. Verified by
        ``tests/experiments/test_accuracy_figures.py``.
    """
    import matplotlib.pyplot as plt

    cases = max(len(rows) for rows in panels.values())
    size = (1.2 + 5.0 * len(panels), 1.5 + 0.5 * cases)
    with plt.rc_context(SMALL):
        figure, grid = plt.subplots(1, len(panels), figsize=size, squeeze=False)
        for axes, (name, rows) in zip(grid.flat, panels.items(), strict=True):
            places = -np.arange(len(rows), dtype=float)
            for place, row in zip(places, rows.values(), strict=True):
                _pair(axes, place, row)
            axes.set_yticks(places, list(rows))
            axes.set(title=name, ylim=(-len(rows) + 0.4, 0.6), xlabel=xlabel)
        legend_below(figure, entries_of(grid.flat), 2 + 2 * len(panels))
        figure.suptitle(title)
    return figure


def search_cost(
    costs: Mapping[str, float | int], title: str, xlabel: str = "seconds for one search"
):
    """Draws what each way of searching costs, and how many times less than the first.

    Args:
        costs: Cost of each way; the first is what the others are compared with.
        title: What was searched.
        xlabel: What the cost counts.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Algorithm 1. Verified by
        ``tests/experiments/test_accuracy_figures.py``.
    """
    import matplotlib.pyplot as plt

    values = np.asarray(list(costs.values()), float)
    places = -np.arange(len(values))
    with plt.rc_context(SMALL):
        figure, axes = plt.subplots(figsize=(7.0, 1.2 + 0.45 * len(values)))
        axes.plot(values, places, "o", color=COLOURS[1], markersize=7)
        # Room at the right for what stands beside the last dot.
        limits = (values.min() / 2, values.max() * (values.max() / values.min()) ** 0.4)
        axes.set(xscale="log", xlim=limits, xlabel=xlabel, title=title)
        axes.set_ylim(places[-1] - 0.6, 0.6)
        for place, value in zip(places, values, strict=True):
            times = "" if place == 0 else f" ({values[0] / value:.3g} x less)"
            axes.annotate(
                f"{value:.3g}{times}",
                (value, place),
                (8, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                bbox={"color": "white", "pad": 1},
            )
        axes.set_yticks(places, list(costs))
    return figure


def norms_beside_accuracy(
    rates: Sequence[float | int],
    panels: Mapping[str, Mapping[str, Curve]],
    title: str,
    log: Collection[str] = (),
    lines: Mapping[str, float | int] | None = None,
    columns: int = 3,
):
    """Draws theory beside measurement, quantity by quantity over the same rates.

    Args:
        rates: The clipping rates, one place each.
        panels: For each quantity, such as the norm of the implicit update or the
            accuracy, one curve a layer.
        title: What was measured.
        log: Quantities on a log axis.
        lines: Value of the unpruned model, for quantities that have one.
        columns: Panels in a row.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Remark 4. Verified by
        ``tests/experiments/test_accuracy_figures.py``.
    """
    unpruned = ("unpruned", _LINES["unpruned"])
    with panel_grid(panels, columns, title, (3.5, 2.8)) as (figure, shown, _):
        for axes, (name, curves) in zip(shown, panels.items(), strict=True):
            for (label, curve), colour in zip(
                curves.items(), _depth_colours(curves), strict=True
            ):
                draw_curve(axes, curve, label, colour, marker="o", markersize=3)
            reference_lines(axes, [(unpruned, (lines or {}).get(name))])
            means = np.array([np.asarray(c.mean, float) for c in curves.values()])
            means = means[np.isfinite(means) & (means > 0)]
            if name in log and means.size:
                plain_log_axis(axes.yaxis, float(means.max() / means.min()))
            _rate_ticks(axes, rates)
    return figure


def _depth_colours(curves: Mapping[str, Curve]) -> list[Any]:
    """Colours that can be told apart; for many layers, light to dark with depth."""
    if len(curves) < len(COLOURS):
        return [COLOURS[i + 1] for i in range(len(curves))]
    import matplotlib.pyplot as plt

    return list(plt.get_cmap("viridis_r")(np.linspace(0.1, 1.0, len(curves))))


def _rate_ticks(axes, rates: Sequence[float | int]) -> None:
    names = [f"{float(rate):g}".removeprefix("0") or "0" for rate in rates]
    axes.set_xticks(np.arange(len(names)), names, fontsize=7)
    axes.set_xlabel("clipping rate")


def _pair(axes, place: float, row: BeforeAfter) -> None:
    """One task: both accuracies with their intervals, and where chance may be."""
    label = "with Algorithm 1"
    marks = (
        (row.before, 0.13, "s", "0.35", "0.35", "unpruned"),
        (
            *(row.after, -0.13, "o", COLOURS[1]),
            *(
                ("white", f"{label}, could be chance")
                if row.could_be_chance
                else (COLOURS[1], f"{label}, beyond chance")
            ),
        ),
    )
    for (value, low, high), shift, marker, colour, face, name in marks:
        axes.errorbar(
            value,
            place + shift,
            xerr=np.clip([[value - low], [high - value]], 0, None),
            fmt=marker,
            color=colour,
            markerfacecolor=face,
            markersize=5,
            capsize=2,
            label=name,
        )
    if row.majority is not None:
        ends = (place - 0.32, place + 0.32)
        colour = _LINES["majority class"][1]
        axes.vlines(row.majority, *ends, color=colour, lw=2, label="majority class")
    axes.annotate(
        row.note,
        (1.0, place),
        (4, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        fontsize=7,
        color="0.35",
    )
