"""Figures of errors in context, attention by layer, and the training loss."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icltheory.plotting import (
    STYLE,
    Curve,
    attention_maps,
    draw_curve,
    error_curves,
    method_colours,
    method_markers,
    panel_grid,
)
from icltheory.plotting.style import plain_log_axis

__all__ = [
    "attention_along_depth",
    "error_against_examples",
    "errors_by_setting",
    "errors_over_training",
    "loss_of_training",
]

_ZERO = "(predicting 0 gives 1)"


def error_against_examples(
    curves: Mapping[str, Curve],
    dim: int | None,
    title: str,
    lowest: str,
    label: str = "squared error / d",
):
    """Draws the normalised error of each predictor against the number of examples.

    Args:
        curves: Curve of each predictor.
        dim: Input dimension, marked by a line; ``None`` where it has no meaning.
        title: What was measured, on which prompts.
        lowest: The curve whose least value decides where the axis ends; least squares
            falls to the rounding of its arithmetic, far below.
        label: What the error is divided by.

    Returns:
        The matplotlib figure.

    References:
        Garg et al. 2022, Figure 2; Yao et al. 2024, Figure 5a. Verified by
        ``tests/experiments/test_figures.py``.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6.8, 4.2))
        ylabel, ylim = f"{label}  {_ZERO}", _limits(curves, curves[lowest], dim)
        error_curves(curves, ax=axes, ylabel=ylabel, ylim=ylim)
        _mark(axes, dim)
        axes.set_xlim(0, len(curves[lowest].mean) - 1)
        axes.set_title(title, fontsize=10)
    return figure


def errors_over_training(
    snapshots: Mapping[int, Curve],
    reference: tuple[str, Curve],
    dim: int | None,
    title: str,
    label: str = "squared error / d",
):
    """Draws the error of one model at several training steps, light to dark.

    Args:
        snapshots: Curve of the model at each step.
        reference: Name and curve of what it should approach.
        dim: Input dimension, marked by a line; ``None`` where it has no meaning.
        title: What was measured.
        label: What the error is divided by.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Figure 5b. Verified by ``tests/experiments/test_figures.py``.
    """
    import matplotlib.pyplot as plt

    shades = plt.get_cmap("viridis_r")(np.linspace(0.15, 0.95, len(snapshots)))
    curves = {f"step {step:,}": curve for step, curve in snapshots.items()}
    colours = dict(zip(curves, shades, strict=True))
    name, exact = reference
    least = min(snapshots.values(), key=lambda curve: float(np.min(curve.mean)))
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6.8, 4.2))
        error_curves(
            {**curves, name: exact},
            ax=axes,
            ylabel=f"{label}  {_ZERO}",
            ylim=_limits(curves, least, dim),
            colours=colours,
        )
        _mark(axes, dim)
        axes.set_xlim(0, len(exact.mean) - 1)
        axes.set_title(title, fontsize=10)
    return figure


def errors_by_setting(panels: Mapping[str, Mapping[str, Curve]], title: str):
    """Draws one small panel per setting, all with the same predictors and axes.

    Args:
        panels: Curves of each setting.
        title: What is compared.

    Returns:
        The matplotlib figure.

    References:
        Garg et al. 2022, Figure 4. Verified by ``tests/experiments/test_figures.py``.
    """
    every = [curve for curves in panels.values() for curve in curves.values()]
    top = 1.5 * max(float(np.nanmax(curve.mean)) for curve in every)
    with panel_grid(panels, 3, title, (2.6, 1.6)) as (figure, shown, _):
        for axes, curves in zip(shown, panels.values(), strict=True):
            colours, markers = method_colours(curves), method_markers(curves)
            for name, curve in curves.items():
                style = {"marker": markers[name], "markersize": 3.5, "markevery": 2}
                draw_curve(axes, curve, name, colours[name], **style)
            axes.axhline(1.0, color="0.5", linewidth=0.8, linestyle=":", zorder=0)
            plain_log_axis(axes.yaxis, np.inf)
            axes.set_ylim(2e-3, top)
            axes.set_xlim(0, max(len(curve.mean) for curve in every) - 1)
            axes.set_xlabel("in-context examples k")
            axes.label_outer()
        figure.supylabel("squared error / error of predicting 0", fontsize=9)
    return figure


def attention_along_depth(weights: Any, tokens: Sequence[str] | None, title: str):
    """Draws the attention of each layer from each token to the tokens before it.

    Args:
        weights: Attention weights, ``(layers, tokens, tokens)``.
        tokens: Names of the tokens, or ``None`` for their numbers.
        title: Over what they are averaged.

    Returns:
        The matplotlib figure.

    References:
        Verified by ``tests/experiments/test_figures.py``.
    """
    # The first tokens attend to few others, and their large weights would make all
    # others look pale.
    images = attention_maps(weights, tokens=tokens, columns=3, limit=0.5)
    figure = images[0].axes.figure
    figure.suptitle(title, fontsize=10)
    return figure


def loss_of_training(
    steps: Sequence[int], losses: Mapping[str, tuple[Sequence[float], bool]], title: str
):
    """Draws losses over training steps.

    Args:
        steps: The steps.
        losses: Loss at each step, by name, and whether it is exact.
        title: What was trained.

    Returns:
        The matplotlib figure.

    References:
        Verified by ``tests/experiments/test_figures.py``.
    """
    import matplotlib.pyplot as plt

    curves = {
        name: Curve(values, exact=exact, x=steps)
        for name, (values, exact) in losses.items()
    }
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6.8, 3.6))
        labels = {"xlabel": "training step", "ylabel": "mean squared error of a prompt"}
        error_curves(curves, ax=axes, **labels)
        axes.set_title(title, fontsize=10)
    return figure


def _limits(
    curves: Mapping[str, Curve], lowest: Curve, dim: int | None
) -> tuple[float, float]:
    """Returns axis limits, from below one curve's least value to the largest of all."""
    least = np.asarray(lowest.mean, float)
    top = max(float(np.max(curve.mean)) for curve in curves.values())
    if dim is None:
        # Where y is not linear in x, least squares has no finite error near k = d.
        top = min(top, 3.0)
    return 0.6 * float(least[least > 0].min()), 1.3 * top


def _mark(axes, dim: int | None) -> None:
    """Draws lines at the error of predicting 0 and, for linear functions, at k = d."""
    axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":", zorder=0)
    if dim is None:
        return
    axes.axvline(dim, color="grey", linewidth=0.8, linestyle=":", zorder=0)
    axes.annotate(
        "k = d",
        (dim, 1.0),
        (3, -10),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        color="0.35",
        fontsize=8,
    )
