"""Attention, label embeddings and errors of transformers of several layers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icltheory.plotting.style import COLOURS, STYLE

__all__ = ["attention_by_layer", "errors_against_sum", "labels_by_layer"]


def attention_by_layer(masses: Mapping[str, Any], steps: Sequence[int], title: str):
    """Draws the attention mass of every layer along training.

    Args:
        masses: Masses ``(seeds, steps, layers)``, a panel each.
        steps: Steps of the snapshots.
        title: What is attended to.

    Returns:
        The matplotlib figure.

    References:
        Li et al. 2024, Figures 21 to 23. Verified by
        ``tests/experiments/test_pattern_layers.py``.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            1,
            len(masses),
            figsize=(4.6 * len(masses), 3.8),
            sharey=True,
            squeeze=False,
        )
        for axes, (name, values) in zip(grid.flat, masses.items(), strict=True):
            for layer, by_seed in enumerate(np.moveaxis(np.asarray(values), 2, 0)):
                colour = COLOURS[1 + layer % 6]
                for row in by_seed:
                    axes.plot(steps, row, color=colour, linewidth=0.7, alpha=0.5)
                label = f"layer {layer + 1}"
                axes.plot(steps, by_seed.mean(0), color=colour, label=label)
            axes.set(title=name, xlabel="step", ylim=(0, 1.02))
        grid[0, 0].set_ylabel("attention mass")
        grid[0, 0].legend(loc="lower right")
        figure.suptitle(f"{title}; thin: each seed")
    return figure


def labels_by_layer(norms: Any, angles: Any, steps: Sequence[int], title: str):
    """Draws the norm of each neuron's label part against its angle, by layer.

    Args:
        norms: Norms ``(steps, layers, m)``.
        angles: Angles to q or -q in multiples of pi, of the same shape.
        steps: Steps of the snapshots; four of them are drawn, by colour.
        title: What was trained.

    Returns:
        The matplotlib figure.

    References:
        Li et al. 2024, Figures 24 to 26. Verified by
        ``tests/experiments/test_pattern_layers.py``.
    """
    import matplotlib.pyplot as plt

    norms, angles = np.asarray(norms), np.asarray(angles)
    layers = norms.shape[1]
    shown = np.unique(np.linspace(0, len(steps) - 1, 4).round().astype(int))
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            1,
            layers,
            figsize=(3.4 * layers, 3.8),
            sharex=True,
            sharey=True,
            squeeze=False,
        )
        palette = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(shown)))
        for layer, axes in enumerate(grid.flat):
            for colour, place in zip(palette, shown, strict=True):
                axes.plot(
                    angles[place, layer],
                    norms[place, layer],
                    "o",
                    color=colour,
                    markersize=3,
                    alpha=0.7,
                    label=f"step {steps[place]}",
                )
            axes.set(title=f"layer {layer + 1}", xlabel=r"angle to $\pm q$, over $\pi$")
        grid[0, 0].set(ylabel="norm of the label part", xlim=(0, 0.52))
        grid[0, 0].set_ylim(bottom=0)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        figure.suptitle(title)
    return figure


def errors_against_sum(
    sums: Sequence[float],
    panels: Mapping[str, Mapping[str, tuple[Any, Any, Any]]],
    title: str,
):
    """Draws errors out of domain against the coefficient sum.

    Args:
        sums: Ascending sums S_1.
        panels: For each name of the values, and each line, the mean, its standard
            error, and the mean of each seed ``(seeds, sums)``.
        title: What was averaged.

    Returns:
        The matplotlib figure.

    References:
        Li et al. 2024, Figure 12. Verified by
        ``tests/experiments/test_pattern_layers.py``.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            1, len(panels), figsize=(4.8 * len(panels), 3.9), squeeze=False
        )
        for axes, (name, lines) in zip(grid.flat, panels.items(), strict=True):
            for colour, (label, (mean, error, seeds)) in enumerate(lines.items(), 1):
                shade = COLOURS[colour % len(COLOURS)]
                bars = {"yerr": 2 * np.asarray(error), "capsize": 2}
                # Aside, so that bars stand next to each other.
                places = np.asarray(sums) + 0.02 * (colour - (1 + len(lines)) / 2)
                bars |= {"markersize": 4, "linewidth": 1.3}
                axes.errorbar(places, mean, fmt="o-", color=shade, label=label, **bars)
                for row in seeds:
                    axes.plot(sums, row, color=shade, linewidth=0.7, alpha=0.5)
            axes.axvline(1, color="grey", linestyle=":", linewidth=0.9)
            axes.set(xlabel="coefficient sum $S_1$", ylabel=name)
            axes.set_ylim(bottom=0)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        figure.suptitle(f"{title}; thin: each seed", fontsize=10)
    return figure
