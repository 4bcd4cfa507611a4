"""Errors, condition numbers and gains of pruned models."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory.plotting import Curve
from icltheory.plotting.style import COLOURS, STYLE, plain_log_axis

__all__ = [
    "Gain",
    "RatePanel",
    "condition_numbers_by_layer",
    "errors_against_rate",
    "gains_of_choices",
]


class RatePanel(NamedTuple):
    """One panel of errors against how much is kept.

    Attributes:
        ticks: What is kept at each place, such as a rate with its rank.
        curves: One curve a layer, over the places.
        baseline: Error of the model as it is.
        dashed: A second way to prune, in the same colours.
        xlabel: What the ticks say.
    """

    ticks: Sequence[str]
    curves: Mapping[str, Curve]
    baseline: float
    dashed: Mapping[str, Curve] = {}
    xlabel: str = "clipping rate (rank kept)"


def errors_against_rate(panels: Mapping[str, RatePanel], title: str, columns: int = 3):
    """Draws the error against the clipping rate, one line a layer, on a log axis.

    The dotted line is the error of the unpruned model; a star marks the least error of
    a layer where it lies below that line.

    Args:
        panels: What each panel shows, by its title.
        title: What was measured.
        columns: Panels in a row.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Figures 1 and 2. Verified by
        ``tests/experiments/test_prune_icl.py``.
    """
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    with plt.rc_context({**STYLE, "font.size": 9, "lines.linewidth": 1.5}):
        figure, grid = plt.subplots(
            rows, columns, figsize=(3.5 * columns, 2.9 * rows + 0.5), squeeze=False
        )
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        entries: dict[str, Any] = {}
        for axes, (name, panel) in zip(grid.flat, panels.items(), strict=False):
            _rate_panel(axes, panel)
            axes.set_title(name)
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                entries.setdefault(label, handle)
        star = Line2D([], [], color="k", marker="*", markersize=9, linestyle="")
        entries["least, where below the unpruned"] = star
        figure.legend(
            entries.values(), entries, loc="outside lower center", ncols=len(entries)
        )
        figure.suptitle(title)
        figure.supylabel("squared error / d")
    return figure


def _rate_panel(axes, panel: RatePanel) -> None:
    places = np.arange(len(panel.ticks))
    for order, (label, curve) in enumerate(panel.curves.items()):
        colour = COLOURS[(order + 1) % len(COLOURS)]
        mean = np.asarray(curve.mean, float)
        axes.plot(places, mean, "o-", markersize=3, color=colour, label=label)
        if curve.low is not None:
            low = np.maximum(np.asarray(curve.low, float), mean / 1e3)
            axes.fill_between(places, low, curve.high, color=colour, alpha=0.2, lw=0)
        best = int(np.argmin(mean))
        if mean[best] < panel.baseline:
            axes.plot(places[best], mean[best], "*", markersize=9, color=colour)
        if label in panel.dashed:
            values = np.asarray(panel.dashed[label].mean, float)
            axes.plot(places, values, "s--", markersize=3, color=colour, alpha=0.8)
    axes.axhline(panel.baseline, color="grey", linestyle=":", linewidth=1.0)
    # A log axis over less than half a decade has crowded labels and shows no more.
    means = np.concatenate([np.asarray(c.mean, float) for c in panel.curves.values()])
    if means.max() > 3 * means.min():
        plain_log_axis(axes.yaxis, float(means.max() / means.min()))
    axes.set_xticks(places, panel.ticks, fontsize=7)
    axes.set_xlabel(panel.xlabel, fontsize=8)


def condition_numbers_by_layer(
    panels: Mapping[str, Mapping[str, tuple[Any, float]]], title: str
):
    """Draws condition numbers by layer, and below them their ratio to random matrices.

    Args:
        panels: For each model, for each matrix, the condition numbers
            ``(seeds, layers)`` and that of a random matrix of its shape.
        title: What was measured.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Figure 3. Verified by ``tests/experiments/test_prune_icl.py``.
    """
    import matplotlib.pyplot as plt

    columns = len(panels)
    with plt.rc_context({**STYLE, "font.size": 9}):
        figure, grid = plt.subplots(
            2, columns, figsize=(4.8 * columns, 6.0), sharex="col", squeeze=False
        )
        for column, (name, matrices) in enumerate(panels.items()):
            for order, (matrix, (values, null)) in enumerate(matrices.items()):
                colour = COLOURS[order % len(COLOURS)]
                values = np.asarray(values, float)
                layers = np.arange(values.shape[1])
                # Matrices stand side by side, so that their seeds can be told apart.
                shifted = layers + 0.08 * (order - (len(matrices) - 1) / 2)
                for axes, scale in ((grid[0, column], 1.0), (grid[1, column], null)):
                    axes.plot(
                        shifted,
                        np.exp(np.log(values / scale).mean(axis=0)),
                        "-",
                        color=colour,
                        linewidth=1.3,
                        label=matrix,
                    )
                    for row in values:
                        axes.plot(shifted, row / scale, "o", color=colour, markersize=3)
            grid[1, column].axhline(1.0, color="grey", linestyle=":", linewidth=1.2)
            grid[0, column].set_title(name)
            grid[1, column].set_xlabel("layer")
            depth = np.shape(next(iter(matrices.values()))[0])[1]
            grid[1, column].set_xticks(np.arange(depth))
            for axes in grid[:, column]:
                axes.set_yscale("log")
            grid[0, column].legend(fontsize=8, ncols=2)
        grid[0, 0].set_ylabel("condition number")
        grid[1, 0].set_ylabel("ratio to a random matrix's median")
        figure.suptitle(title)
    return figure


class Gain(NamedTuple):
    """Relative change of the error by a choice; below 0 the pruned model is better.

    Attributes:
        validation: Change on the prompts on which the choice was made.
        test: Change on other prompts.
        low: Lower end of the interval of ``test``.
        high: Upper end of the interval of ``test``.
        note: What was chosen.
    """

    validation: float
    test: float
    low: float
    high: float
    note: str


def gains_of_choices(panels: Mapping[str, Mapping[str, Gain]], title: str):
    """Draws what each choice promised on validation and what it kept on test.

    Args:
        panels: For each condition, the gain of each model and module.
        title: What was measured.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Figure 4. Verified by ``tests/experiments/test_prune_icl.py``.
    """
    import matplotlib.pyplot as plt

    cases = max(len(gains) for gains in panels.values())
    with plt.rc_context({**STYLE, "font.size": 9}):
        figure, grid = plt.subplots(
            1,
            len(panels),
            figsize=(2.0 + 3.9 * len(panels), 1.4 + 0.3 * cases),
            sharey=True,
            squeeze=False,
        )
        for axes, (name, gains) in zip(grid.flat, panels.items(), strict=True):
            places = -np.arange(len(gains))
            for place, gain in zip(places, gains.values(), strict=True):
                error = [[gain.test - gain.low], [gain.high - gain.test]]
                axes.errorbar(
                    100 * gain.test,
                    place,
                    None,
                    100 * np.array(error),
                    fmt="o",
                    color=COLOURS[1],
                    markersize=5,
                    capsize=2,
                    label="test, with interval",
                )
                axes.plot(
                    100 * gain.validation,
                    place + 0.22,
                    "D",
                    color=COLOURS[2],
                    markerfacecolor="none",
                    markersize=5,
                    label="validation",
                )
                axes.annotate(
                    gain.note,
                    (1.0, place),
                    (3, 0),
                    xycoords=("axes fraction", "data"),
                    textcoords="offset points",
                    va="center",
                    fontsize=7,
                    color="grey",
                )
            axes.axvline(0.0, color="grey", linestyle=":", linewidth=1.2)
            axes.set_yticks(places, list(gains))
            axes.set(title=name, ylim=(-len(gains) + 0.4, 0.8))
            axes.set_xlabel("change of the error in %")
        handles, labels = grid.flat[0].get_legend_handles_labels()
        entries = dict(zip(labels, handles, strict=True))
        figure.legend(
            entries.values(), entries, loc="outside lower center", ncols=len(entries)
        )
        figure.suptitle(title)
    return figure
