"""Figures of attention, label embeddings and errors of several layers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments._frame.looks import layer_marker, name_ends, page
from icltheory.plotting.style import COLOURS

__all__ = ["attention_by_layer", "errors_against_sum", "labels_by_layer"]


def attention_by_layer(masses: Mapping[str, Any], steps: Sequence[int], title: str):
    """Draws the attention mass of every layer over training.

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
    with page(masses, 2, title, 2.9, sharey=True) as (shown, _):
        for axes, values in zip(shown, masses.values(), strict=True):
            ends = []
            for layer, by_seed in enumerate(np.moveaxis(np.asarray(values), 2, 0)):
                colour, mean = COLOURS[1 + layer % 6], by_seed.mean(0)
                for row in by_seed:
                    axes.plot(steps, row, color=colour, linewidth=0.7, alpha=0.5)
                axes.plot(steps, mean, color=colour)
                ends.append((float(mean[-1]), f"layer {layer + 1}", colour))
            axes.set(xlabel="step", ylim=(0, 1.02))
            name_ends(axes, ends)
        shown[0].set_ylabel("share of the attention")
    return shown[0].figure


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
    titles = [f"layer {layer + 1}" for layer in range(norms.shape[1])]
    places = np.unique(np.linspace(0, len(steps) - 1, 4).round().astype(int))
    palette = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(places)))
    with page(titles, 3, title, 2.8, sharey=True) as (shown, entries):
        for layer, axes in enumerate(shown):
            for order, (colour, place) in enumerate(zip(palette, places, strict=True)):
                mark = {"marker": layer_marker(order), "markersize": 3, "alpha": 0.7}
                points = angles[place, layer], norms[place, layer]
                drawn = axes.plot(*points, color=colour, linestyle="", **mark)
                entries[f"step {steps[place]}"] = drawn[0]
            axes.set(xlabel=r"angle to $\pm q$, over $\pi$", xlim=(0, 0.52))
        shown[0].set_ylabel("norm of the label part")
        shown[0].set_ylim(bottom=0)
    return shown[0].figure


def errors_against_sum(
    sums: Sequence[float],
    panels: Mapping[str, Mapping[str, tuple[Any, Any, Any]]],
    title: str,
):
    """Draws out-of-domain errors against the coefficient sum.

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
    with page(panels, 2, title, 3.0) as (shown, _):
        for axes, (name, lines) in zip(shown, panels.items(), strict=True):
            ends = []
            for order, (label, (mean, error, seeds)) in enumerate(lines.items(), 1):
                colour = COLOURS[order % len(COLOURS)]
                # Points are shifted sideways, so that error bars do not overlap.
                places = np.asarray(sums) + 0.03 * (order - (1 + len(lines)) / 2)
                mark = {"marker": layer_marker(order), "markersize": 5, "capsize": 2}
                bars = 2 * np.asarray(error)
                axes.errorbar(places, mean, bars, color=colour, linewidth=1.3, **mark)
                for row in seeds:
                    axes.plot(places, row, "_", color=colour, markersize=6)
                ends.append((float(mean[-1]), label, colour))
            axes.axvline(1, color="grey", linestyle=":", linewidth=0.9)
            axes.set(xlabel="coefficient sum $S_1$", ylabel=name)
            axes.set_ylim(bottom=0)
            name_ends(axes, ends)
    return shown[0].figure
