"""Figures of accuracy against the number of demonstrations."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments._frame.looks import (
    demonstration_places,
    demonstrations_axis,
    page,
)
from icltheory.plotting import COLOURS, Curve

__all__ = ["ShotsPanel", "accuracy_against_shots"]

_MARKERS = "osD^"


class ShotsPanel(NamedTuple):
    """One panel of accuracies against the number of demonstrations.

    Attributes:
        shots: The numbers of demonstrations.
        curves: Mean over the choice of demonstrations, with its interval.
        chance: Accuracy of guessing.
        majority: Accuracy of always answering the commonest class.
        points: Accuracy of each choice of demonstrations, ``(choices, shots)``.
        note: What to know about the answers without demonstrations.
    """

    shots: Sequence[int]
    curves: Mapping[str, Curve]
    chance: float | None = None
    majority: float | None = None
    points: Mapping[str, Any] = {}
    note: str = ""


def accuracy_against_shots(
    panels: Mapping[str, ShotsPanel],
    title: str,
    columns: int = 2,
    ylabel: str = "accuracy",
):
    """Draws in-context curves: the accuracy against the number of demonstrations.

    Bars are intervals, pale dots single choices of demonstrations; all panels share the
    axis of accuracies.

    Args:
        panels: What each panel shows, by its title, such as a task.
        title: What was measured, and over how many choices of demonstrations.
        columns: Panels in a row.
        ylabel: Name of the accuracy.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: If there is no panel.

    References:
        Yao et al. 2024, section 2.2 and Figure 2. Verified by
        ``tests/experiments/test_accuracy_figures.py``.
    """
    with page(panels, columns, title, 2.6, sharey=True) as (shown, _):
        for axes, panel in zip(shown, panels.values(), strict=True):
            _panel(axes, panel)
            axes.set_ylim(0, 1.05)
        for axes in shown[::columns]:
            axes.set_ylabel(ylabel)
    return shown[0].figure


def _panel(axes, panel: ShotsPanel) -> None:
    places = demonstration_places(panel.shots)
    for order, (label, curve) in enumerate(panel.curves.items()):
        colour = COLOURS[order % len(COLOURS)]
        # Curves are shifted sideways, since pruning without effect leaves a curve
        # unchanged.
        x = places + 0.09 * (order - (len(panel.curves) - 1) / 2)
        mean = np.asarray(curve.mean, float)
        bars = None
        if curve.low is not None:
            bars = np.clip([mean - curve.low, np.asarray(curve.high) - mean], 0, None)
        mark = {"marker": _MARKERS[order % len(_MARKERS)], "markersize": 4}
        line = {"color": colour, "linewidth": 1.2, "capsize": 2, "label": label}
        axes.errorbar(x, mean, bars, **mark, **line)
        for row in np.asarray(panel.points.get(label, ()), float):
            axes.plot(x + 0.04, row, ".", color=colour, alpha=0.3, markersize=3)
    levels = {"chance": (panel.chance, ":"), "majority class": (panel.majority, "-.")}
    for label, (level, style) in levels.items():
        same = label != "chance" and level == panel.chance
        if level is not None and not same:
            look = {"linestyle": style, "color": "0.4", "linewidth": 1.1}
            axes.axhline(level, label=label, **look)
    demonstrations_axis(axes, panel.shots)
    if panel.note:
        axes.axvspan(places[0] - 0.3, places[0] + 0.3, color="grey", alpha=0.15, lw=0)
        look = {"fontsize": 8, "color": "0.35", "ha": "right"}
        axes.text(places[-1] + 0.3, 0.04, panel.note, **look)
