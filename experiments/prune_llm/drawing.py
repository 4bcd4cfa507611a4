"""Figures of changes of accuracy by clipping, over rates and after Algorithm 1."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments._frame.looks import (
    key,
    layer_colours,
    layer_marker,
    name_ends,
    page,
    rates_axis,
)
from icltheory.plotting import Curve, draw_curve
from icltheory.plotting.grid import SMALL
from icltheory.plotting.style import COLOURS, plain_log_axis

__all__ = [
    "ChangeCurve",
    "ChangePanel",
    "ChoiceChange",
    "algorithm1_changes",
    "change_against_rate",
    "norms_beside_accuracy",
    "search_cost",
]

POINTS = "change of accuracy, points"


class ChangeCurve(NamedTuple):
    """Change of one layer's accuracy from the unpruned model, over rates.

    Attributes:
        mean: The paired difference at each rate.
        low: Lower end of its interval.
        high: Upper end.
        sure: Where the difference survives the correction for multiple tests.
    """

    mean: Any
    low: Any
    high: Any
    sure: Any


class ChangePanel(NamedTuple):
    """One panel of changes against the clipping rate.

    Attributes:
        rates: The clipping rates.
        curves: One curve a layer.
    """

    rates: Sequence[float | int]
    curves: Mapping[str, ChangeCurve]


class ChoiceChange(NamedTuple):
    """Change of the test accuracy by Algorithm 1's choice.

    Attributes:
        change: The paired difference, with the ends of its interval; ``None`` where
            the choice was not to prune.
        sure: Whether it survives the correction for multiple tests.
        note: What was chosen, such as a layer, a rate and a p-value.
    """

    change: tuple[float, float, float] | None
    sure: bool = False
    note: str = ""


def change_against_rate(
    panels: Mapping[str, ChangePanel], title: str, columns: int = 4
):
    """Draws the change of accuracy against the clipping rate, one curve per layer.

    A mark is filled where the change survives the correction for multiple tests.

    Args:
        panels: What each panel shows, by its title, such as a task and a module.
        title: What was measured.
        columns: Panels in a row.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: If there is no panel.

    References:
        Yao et al. 2024, Figures 1 and 2. Verified by
        ``tests/experiments/test_accuracy_figures.py``.
    """
    with page(panels, columns, title, 2.2, sharey=True) as (shown, entries):
        for axes, panel in zip(shown, panels.values(), strict=True):
            axes.axhline(0, color="0.35", linestyle="--", linewidth=1)
            looks = layer_colours(panel.curves)
            for place, (label, curve) in enumerate(panel.curves.items()):
                look = {"color": looks[label], "marker": layer_marker(place)}
                _change(axes, panel.rates, curve, look)
                entries[label] = key(**look, markersize=5)
            rates_axis(axes)
        for label, face in (
            ("beyond chance", "0.35"),
            ("not beyond chance", "white"),
        ):
            entries[label] = key(linestyle="", marker="o", markerfacecolor=face)
        for axes in shown[::columns]:
            axes.set_ylabel(POINTS)
    return shown[0].figure


def _change(axes, rates, curve: ChangeCurve, look: dict[str, Any]) -> None:
    mean, low, high = (100 * np.asarray(v, float) for v in curve[:3])
    rates, sure = np.asarray(rates, float), np.asarray(curve.sure, bool)
    bars = np.clip([mean - low, high - mean], 0, None)
    line = {"color": look["color"], "linewidth": 1.1, "capsize": 2}
    axes.errorbar(rates, mean, bars, **line)
    for which, face in ((sure, look["color"]), (~sure, "white")):
        marks = {**look, "linestyle": "", "markersize": 4, "markerfacecolor": face}
        axes.plot(rates[which], mean[which], **marks, zorder=4)


def algorithm1_changes(
    panels: Mapping[str, Mapping[str, ChoiceChange]],
    title: str,
    xlabel: str = POINTS,
):
    """Draws the change of the test accuracy by Algorithm 1 with its interval.

    A filled dot is a change that survives the correction for multiple tests, a hollow
    one is not; a choice not to prune has a dash at 0. The note stands at the right.

    Args:
        panels: For each module, or model and module, the change of each task.
        title: What was measured.
        xlabel: Name of the change.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: If there is no panel.

    References:
        Yao et al. 2024, Figure 4. Verified by
        ``tests/experiments/test_accuracy_figures.py``.
    """
    cases = max((len(rows) for rows in panels.values()), default=0)
    rows_of_all = [row for rows in panels.values() for row in rows.values()]
    ends = [value for row in rows_of_all for value in row.change or ()]
    limit = 115 * max(np.abs([*ends, 0.01]))
    with page(panels, 2, title, 1.1 + 0.42 * cases) as (shown, _):
        for number, (axes, rows) in enumerate(zip(shown, panels.values(), strict=True)):
            axes.axvline(0, color="0.35", linestyle="--", linewidth=1)
            for place, row in enumerate(rows.values()):
                _tested(axes, -place, row)
            names = list(rows) if number % 2 == 0 else [""] * len(rows)
            axes.set_yticks(-np.arange(len(rows)), names)
            axes.set(ylim=(-len(rows) + 0.4, 0.6), xlabel=xlabel)
            axes.set_xlim(-limit, limit)
    return shown[0].figure


def _tested(axes, place: float, row: ChoiceChange) -> None:
    if row.change is None:
        axes.plot(0, place, "_", color="0.35", markersize=10, label="_not pruned")
    else:
        value, low, high = 100 * np.asarray(row.change)
        mark = {"fmt": "o", "color": COLOURS[1], "markersize": 5, "capsize": 3}
        face = COLOURS[1] if row.sure else "white"
        bars = np.clip([[value - low], [high - value]], 0, None)
        axes.errorbar(value, place, xerr=bars, markerfacecolor=face, **mark)
    axes.annotate(
        row.note,
        (1.0, place),
        (4, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color="0.35",
    )


def search_cost(
    costs: Mapping[str, float | int], title: str, xlabel: str = "seconds for one search"
):
    """Draws the cost of each way to search, with its ratio to the first.

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
        # The limits leave room for the text beside the last dot.
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
    """Draws theoretical quantities and measured accuracy over the same rates.

    Args:
        rates: The clipping rates.
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
    with page(panels, columns, title, 2.5) as (shown, _):
        for axes, (name, curves) in zip(shown, panels.items(), strict=True):
            looks, ends = layer_colours(curves), []
            for place, (label, curve) in enumerate(curves.items()):
                mark = {"marker": layer_marker(place), "markersize": 3}
                shown_curve = curve._replace(x=rates)
                draw_curve(axes, shown_curve, f"_{label}", looks[label], **mark)
                mean = np.asarray(curve.mean, float)
                mean = mean[np.isfinite(mean)]
                ends += [(float(mean[-1]), label, looks[label])] if mean.size else []
            line = (lines or {}).get(name)
            if line is not None:
                axes.axhline(line, color="0.35", linestyle="--", linewidth=1.2)
                ends.append((line, "unpruned", "0.35"))
            means = np.array([np.asarray(c.mean, float) for c in curves.values()])
            means = means[np.isfinite(means) & (means > 0)]
            if name in log and means.size:
                plain_log_axis(axes.yaxis, float(means.max() / means.min()))
            rates_axis(axes)
            name_ends(axes, ends)
    return shown[0].figure
