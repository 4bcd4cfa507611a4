"""Figures of published levels and searched tasks, and of norms over training."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments._frame.looks import key, page
from icltheory.plotting.style import COLOURS

__all__ = ["levels_beside_published", "norms_along_training"]


def levels_beside_published(
    panels: Mapping[str, Mapping[str, tuple[Any, Any, Any]]], title: str
):
    """Draws published errors as dots and errors of the best tasks as lines.

    Args:
        panels: For each title, by label: lengths, published errors, errors found.
        title: Title of the figure.

    Returns:
        The matplotlib figure.

    References:
        Li et al. 2024, Figures 17 to 19. Verified by
        ``tests/experiments/test_li_figures.py``.
    """
    with page(panels, 2, title, 2.9) as (shown, entries):
        for axes, curves in zip(shown, panels.values(), strict=True):
            for place, (x, published, found) in enumerate(curves.values()):
                colour = COLOURS[1 + place % 6]
                axes.plot(x, published, "o", color=colour, markersize=4)
                axes.plot(x, found, color=colour)
            axes.set(xlabel="examples in the prompt", yscale="log")
            _name(axes, curves)
        for place in range(0, len(shown), 2):
            shown[place].set_ylabel("error")
        entries["read off the figure"] = key(marker="o", linestyle="")
        entries["attention that counts votes, task found"] = key()
    return shown[0].figure


def norms_along_training(
    steps: Sequence[int],
    panels: Mapping[str, Mapping[str, tuple[Any, float]]],
    title: str,
):
    """Draws norms over training, with the last published value of each dashed.

    Args:
        steps: Steps of the snapshots.
        panels: For each title, by label: values, and the published one.
        title: Title of the figure.

    Returns:
        The matplotlib figure.

    References:
        Li et al. 2024, Figures 8, 10, 11 and 14. Verified by
        ``tests/experiments/test_li_figures.py``.
    """
    with page(panels, 2, title, 2.9) as (shown, entries):
        for axes, curves in zip(shown, panels.values(), strict=True):
            for place, (values, published) in enumerate(curves.values()):
                colour = COLOURS[1 + place % 6]
                axes.plot(steps, np.asarray(values), color=colour)
                axes.axhline(published, color=colour, linestyle="--", linewidth=1)
            axes.set(xlabel="step", ylim=(0, None))
            _name(axes, curves)
        shown[0].set_ylabel("mean norm")
        entries["end of the published figure"] = key(linestyle="--")
    return shown[0].figure


def _name(axes: Any, names: Iterable[str]) -> None:
    """Adds a legend of the panel's own lines."""
    lines = (key(color=COLOURS[1 + i % 6], label=name) for i, name in enumerate(names))
    axes.legend(handles=list(lines), fontsize=7)
