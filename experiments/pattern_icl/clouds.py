"""Figures of neurons over training: their angles and norms."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from experiments._frame.looks import key, page
from icltheory.plotting.style import COLOURS

__all__ = ["NeuronCloud", "neurons_along_training"]


class NeuronCloud(NamedTuple):
    """Norms and angles of neurons at every snapshot.

    Attributes:
        size: Norm of their part, (snapshots, neurons).
        angle: Its angle to a direction, in radians, of the same shape.
        positive: Which neurons add to the output, (neurons,).
    """

    size: Any
    angle: Any
    positive: Any


def neurons_along_training(
    clouds: Mapping[str, NeuronCloud], steps: Any, title: str, kinds: tuple[str, str]
):
    """Draws the angle of every neuron over training, and below it its norm.

    Norms are on a logarithmic axis: those of the start are the hundredth part of those
    of the end.

    Args:
        clouds: Columns of panels by title.
        steps: Steps of the snapshots.
        title: What was trained.
        kinds: What neurons that add and others are called.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: If there is no panel.

    References:
        Li et al. (2024), Figures 10 and 11. Verified by
        ``tests/experiments/test_pattern_icl.py``.
    """
    titles = [*clouds, *[""] * len(clouds)]
    with page(titles, max(len(clouds), 1), title, 2.0) as (shown, entries):
        angles, sizes = shown[: len(clouds)], shown[len(clouds) :]
        for above, below, cloud in zip(angles, sizes, clouds.values(), strict=True):
            positive = np.asarray(cloud.positive, bool)
            for which, colour in zip((positive, ~positive), COLOURS[1:3], strict=True):
                line = {"color": colour, "linewidth": 0.6}
                above.plot(steps, np.asarray(cloud.angle)[:, which], **line)
                below.plot(steps, np.asarray(cloud.size)[:, which], **line)
            places = np.linspace(0, 1, 5)
            above.set_yticks(places * np.pi, ["0", "π/4", "π/2", "3π/4", "π"])
            above.set_ylim(-0.1, np.pi + 0.1)
            below.set(yscale="log", xlabel="iteration")
        angles[0].set_ylabel("angle")
        sizes[0].set_ylabel("norm")
        for kind, colour in zip(kinds, COLOURS[1:3], strict=True):
            entries[kind] = key(color=colour)
    return shown[0].figure
