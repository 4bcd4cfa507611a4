"""Neurons of a pattern classifier along training: size and angle, coloured by time."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from icltheory.plotting.style import STYLE

__all__ = ["NeuronCloud", "neuron_clouds"]


class NeuronCloud(NamedTuple):
    """Neurons at every snapshot.

    Attributes:
        size: Norm of their part, (snapshots, neurons).
        angle: Its angle to a direction, in radians, of the same shape.
        filled: Which are drawn as dots, the others as open circles, (neurons,).
    """

    size: Any
    angle: Any
    filled: Any


def neuron_clouds(
    clouds: Mapping[str, NeuronCloud], steps: Any, title: str, kinds: tuple[str, str]
):
    """Draws the angle of every neuron against its size, coloured by the step.

    Sizes are on a logarithmic axis: those of the start are the hundredth part of those
    of the end.

    Args:
        clouds: Panels by title.
        steps: Steps of the snapshots.
        title: What was trained.
        kinds: What dots and open circles stand for.

    Returns:
        The matplotlib figure.

    References:
        Li et al. (2024), Figures 10 and 11. Verified by
        ``tests/experiments/test_pattern_icl.py``.
    """
    import matplotlib.pyplot as plt

    steps = np.asarray(steps, float)
    with plt.rc_context({**STYLE, "font.size": 9}):
        size = (5.2 * len(clouds), 4.0)
        figure, grid = plt.subplots(1, len(clouds), figsize=size, squeeze=False)
        scale = plt.Normalize(0, steps[-1])
        colours = plt.get_cmap("viridis_r")(scale(steps))
        for axes, (name, cloud) in zip(grid.flat, clouds.items(), strict=True):
            for which in (~np.asarray(cloud.filled), np.asarray(cloud.filled)):
                _points(axes, cloud, which, colours)
            places = np.linspace(0, 1, 5)
            axes.set_yticks(places * np.pi, ["0", "π/4", "π/2", "3π/4", "π"])
            axes.set(xscale="log", xlabel="norm", ylabel="angle", title=name)
            axes.set_ylim(-0.1, np.pi + 0.1)
        mappable = plt.cm.ScalarMappable(scale, "viridis_r")
        figure.colorbar(mappable, ax=grid, label="iteration")
        _legend(figure, kinds)
        figure.suptitle(title)
    return figure


def _points(axes, cloud: NeuronCloud, which, colours) -> None:
    size, angle = np.asarray(cloud.size)[:, which], np.asarray(cloud.angle)[:, which]
    each = np.repeat(colours, size.shape[1], axis=0)
    filled = bool(np.all(np.asarray(cloud.filled)[which]))
    axes.scatter(
        size.ravel(),
        angle.ravel(),
        s=12 if filled else 20,
        linewidths=0.7,
        facecolors=each if filled else "none",
        edgecolors="none" if filled else each,
    )


def _legend(figure, kinds: tuple[str, str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], marker="o", linestyle="", color="grey", ms=4, label=kinds[0]),
        Line2D([], [], marker="o", linestyle="", color="grey", ms=4, mfc="none"),
    ]
    figure.legend(handles, kinds, loc="outside lower center", ncols=2, fontsize=8)
