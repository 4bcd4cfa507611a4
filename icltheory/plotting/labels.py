"""Labels of curves at their right ends, in place of a legend."""

from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["name_ends"]

SIZE = 8.0


def name_ends(axes: Any, ends: Iterable[tuple[float, str, Any]]) -> None:
    """Writes names to the right of the axes at the heights of the curves' ends.

    Names that would overlap are moved apart, as little as possible, and stay between
    the ends of the axis if they fit. They follow when its limits change.

    Args:
        axes: Axes of matplotlib; they keep largest for the names.
        ends: Value at the end, name and colour of each curve.

    Returns:
        Nothing; the axes hold the names.
    """
    ends = sorted(ends, key=lambda end: end[0])
    right = axes.transAxes
    texts = [
        axes.text(
            1.02, 0.0, name, color=colour, fontsize=SIZE, va="center", transform=right
        )
        for _, name, colour in ends
    ]
    # Constrained layout will reduce the height of the axes by about a quarter.
    lines = max(1, *(name.count("\n") + 1 for _, name, _ in ends)) if ends else 1
    inches = axes.get_position().height * axes.figure.get_figheight()
    gap = 1.5 * SIZE / 72 * lines / inches

    def place(axes: Any) -> None:
        data = axes.get_yaxis_transform()
        points = data.transform([(1.0, value) for value, _, _ in ends])
        heights = right.inverted().transform(points)[:, 1]
        for text, height in zip(texts, _apart(heights, gap), strict=True):
            text.set_y(float(height))

    if ends:
        place(axes)
        axes.callbacks.connect("ylim_changed", place)


def _apart(wanted: np.ndarray, gap: float) -> np.ndarray:
    """Returns increasing heights, at least ``gap`` apart, closest to those given.

    Without the gaps this is a regression on ascending numbers, which pooling adjacent
    violators solves; limits of a regression on ascending numbers cut its solution.
    """
    steps = gap * np.arange(len(wanted))
    blocks: list[list[float]] = []
    for value in np.clip(wanted, 0.0, 1.0) - steps:
        blocks.append([value])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    level = np.concatenate([np.full(len(b), np.mean(b)) for b in blocks])
    largest = 1.0 - steps[-1]
    return np.clip(level, min(0.0, largest / 2), max(largest, largest / 2)) + steps
