"""Errors of in-context regression, against examples and over training."""

from collections.abc import Mapping

import numpy as np

from icltheory.plotting import Curve, draw_curve, method_colours
from icltheory.plotting.style import STYLE

__all__ = [
    "error_against_examples",
    "errors_by_setting",
    "errors_over_training",
]


def error_against_examples(
    curves: Mapping[str, Curve], dim: int, title: str, top: float = 1.5
):
    """Draws the normalised error of each predictor against the examples it saw.

    Args:
        curves: Curve of each predictor; the first is drawn in front.
        dim: Input dimension, marked by a line.
        title: What was measured, on which prompts.
        top: Upper limit of the axis.

    Returns:
        The matplotlib figure.

    References:
        Garg et al. 2022, Figure 2; Yao et al. 2024, Figure 5a. Verified by
        ``tests/experiments/test_figures.py``.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6.4, 4.2))
        colours = method_colours(curves)
        for order, (label, curve) in enumerate(curves.items()):
            draw_curve(axes, curve, label, colours[label], zorder=10 - order)
        axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":", zorder=0)
        _mark_dimension(axes, dim, top)
        axes.set(
            xlabel="in-context examples k",
            ylabel="squared error / d  (predicting 0 gives 1)",
            ylim=(0, top),
            xlim=(0, len(next(iter(curves.values())).mean) - 1),
            title=title,
        )
        axes.legend(fontsize=9)
    return figure


def errors_over_training(
    snapshots: Mapping[int, Curve], reference: tuple[str, Curve], dim: int, title: str
):
    """Draws the error of one model at several training steps, light to dark.

    Args:
        snapshots: Curve of the model at each step.
        reference: Name and curve of what it should approach.
        dim: Input dimension, marked by a line.
        title: What was measured.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Figure 5b. Verified by ``tests/experiments/test_figures.py``.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.6, 4.2))
        shades = plt.get_cmap("viridis_r")(
            np.linspace(0.1, 0.95, max(len(snapshots), 1))
        )
        for colour, (step, curve) in zip(shades, snapshots.items(), strict=True):
            draw_curve(axes, curve, f"step {step:,}", colour)
        draw_curve(axes, reference[1], reference[0], "#D55E00", linewidth=1.4)
        axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":", zorder=0)
        top = 1.5
        _mark_dimension(axes, dim, top)
        axes.set(
            xlabel="in-context examples k",
            ylabel="squared error / d  (predicting 0 gives 1)",
            ylim=(0, top),
            xlim=(0, len(reference[1].mean) - 1),
            title=title,
        )
        figure.legend(fontsize=9, loc="outside right center")
    return figure


def errors_by_setting(panels: Mapping[str, Mapping[str, Curve]], title: str):
    """Draws one small panel a setting, all with the same predictors.

    Args:
        panels: Curves of each setting.
        title: What is compared.

    Returns:
        The matplotlib figure.

    References:
        Garg et al. 2022, Figure 4. Verified by ``tests/experiments/test_figures.py``.
    """
    import matplotlib.pyplot as plt

    columns = 5
    rows = -(-len(panels) // columns)
    with plt.rc_context({**STYLE, "font.size": 8, "lines.linewidth": 1.2}):
        figure, grid = plt.subplots(
            rows,
            columns,
            figsize=(2.5 * columns, 2.1 * rows),
            sharex=True,
            squeeze=False,
        )
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes in grid[-1]:
            axes.set_xlabel("in-context examples k")
        for axes, (name, curves) in zip(grid.flat, panels.items(), strict=False):
            colours = method_colours(curves)
            for order, (label, curve) in enumerate(curves.items()):
                draw_curve(axes, curve, label, colours[label], zorder=10 - order)
            axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":", zorder=0)
            axes.set(title=name, ylim=(0, 1.6))
        handles, labels = grid.flat[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=max(len(labels), 1)
        )
        figure.suptitle(title)
        figure.supylabel("normalised squared error")
    return figure


def _mark_dimension(axes, dim: int, top: float) -> None:
    axes.axvline(dim, color="grey", linewidth=0.8, linestyle=":", zorder=0)
    axes.annotate(
        "k = d",
        (dim, top),
        (3, -10),
        textcoords="offset points",
        color="grey",
        fontsize=8,
    )
