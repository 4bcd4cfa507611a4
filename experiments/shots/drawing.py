"""Accuracy of language models against the number of demonstrations."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory.plotting import COLOURS, Curve, draw_curve, panel_grid
from icltheory.plotting.grid import reference_lines

__all__ = ["ShotsPanel", "accuracy_against_shots"]

_CHANCE = ("chance", ("-.", "0.5"))
_MAJORITY = ("majority class", (":", "#E69F00"))


class ShotsPanel(NamedTuple):
    """One panel of accuracies against the number of demonstrations.

    Attributes:
        shots: The numbers of demonstrations, one place each.
        curves: Mean over the choice of demonstrations, with its interval.
        chance: Accuracy of guessing.
        majority: Accuracy of always answering the commonest class.
        points: Accuracy of each choice of demonstrations, ``(choices, shots)``.
    """

    shots: Sequence[int]
    curves: Mapping[str, Curve]
    chance: float | None = None
    majority: float | None = None
    points: Mapping[str, Any] = {}


def accuracy_against_shots(
    panels: Mapping[str, ShotsPanel],
    title: str,
    columns: int = 3,
    ylabel: str = "accuracy",
):
    """Draws in-context curves: the accuracy against the number of demonstrations.

    Args:
        panels: What each panel shows, by its title, such as a task.
        title: What was measured, and over how many choices of demonstrations.
        columns: Panels in a row.
        ylabel: Name of the accuracy.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, section 2.2 and Figure 2. Verified by
        ``tests/experiments/test_accuracy_figures.py``.
    """
    lines = (_CHANCE, _MAJORITY)
    with panel_grid(panels, columns, title, (3.6, 2.9)) as (figure, shown, _):
        for axes, panel in zip(shown, panels.values(), strict=True):
            for order, (label, curve) in enumerate(panel.curves.items()):
                colour = COLOURS[(order + 1) % len(COLOURS)]
                draw_curve(axes, curve, label, colour, marker="o", markersize=3)
                for row in np.asarray(panel.points.get(label, ()), float):
                    places = np.arange(len(row)) + 0.06 * order
                    axes.plot(places, row, ".", color=colour, alpha=0.35, markersize=3)
            values = (panel.chance, panel.majority)
            reference_lines(axes, zip(lines, values, strict=True))
            axes.set_xticks(np.arange(len(panel.shots)), map(str, panel.shots))
            axes.set_xlabel("demonstrations")
        figure.supylabel(ylabel)
    return figure
