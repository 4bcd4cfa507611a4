"""Figures of implicit updates by depth, and of their change by pruning."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from icltheory.plotting import Curve, error_curves, heat_map, panel_grid
from icltheory.plotting.grid import axes_in_rows
from icltheory.plotting.style import STYLE
from icltheory.statistics import Estimate

__all__ = ["norms_along_depth", "ratio_heat_maps", "terms_along_depth"]


def norms_along_depth(
    panels: Mapping[str, Mapping[str, Any]], title: str, ylabel: str, columns: int = 3
):
    """Draws geometric means of norms against depth, with standard errors.

    Args:
        panels: For each panel, the norms ``(prompts, layers)`` of each line.
        title: What was measured.
        ylabel: Name of the norm.
        columns: Panels in a row.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Remark 5. Verified by
        ``tests/experiments/test_trajectories.py``.
    """
    with panel_grid(panels, columns, title, (3.6, 2.7), legend=False) as (_, shown, _):
        for axes, lines in zip(shown, panels.values(), strict=True):
            curves = {label: _geometric(values) for label, values in lines.items()}
            error_curves(curves, ax=axes, xlabel="layer t", ylabel=ylabel)
    return shown[0].figure


def terms_along_depth(panels: Mapping[str, Mapping[str, Any]], title: str):
    """Draws the contribution of each layer to the bound of Theorem 2.

    Args:
        panels: For each panel, the layer terms ``(layers,)`` of each line.
        title: What was measured.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Theorem 2. Verified by
        ``tests/experiments/test_trajectories.py``.
    """
    ylabel = "term $T_t$ of the layer"
    with panel_grid(panels, 3, title, (3.6, 2.7), legend=False) as (_, shown, _):
        for axes, lines in zip(shown, panels.values(), strict=True):
            # A term is infinite if N is too small to estimate the prior's covariance.
            finite = {k: v for k, v in lines.items() if np.isfinite(v).any()}
            if finite:
                error_curves(finite, ax=axes, xlabel="layer t", ylabel=ylabel)
    return shown[0].figure


def ratio_heat_maps(panels: Mapping[str, Any], title: str, columns: int = 3):
    """Draws one heat map per panel: the ratio at layer t when layer k is pruned.

    Colours are those of the logarithm and stop at a factor of 4; every cell says its
    number. Cells left of the diagonal are layers below the pruned one.

    Args:
        panels: For each panel, the ratios ``(k, t)``.
        title: What was measured.
        columns: Panels in a row.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Remark 5. Verified by
        ``tests/experiments/test_trajectories.py``.
    """
    import matplotlib.pyplot as plt

    style = {**STYLE, "font.size": 9, "axes.grid": False}
    with plt.rc_context(style):
        figure, grid = axes_in_rows(len(panels), columns, (2.8, 2.5), (0.6, 0.4))
        images = []
        for axes, (name, ratios) in zip(grid.flat, panels.items(), strict=False):
            image = heat_map(
                np.log(np.asarray(ratios, float)),
                ax=axes,
                xlabel="",
                ylabel="",
                limit=float(np.log(4.0)),
                write=lambda log: _short(np.exp(log)),
                title=name,
            )
            images.append(image)
        for axes in grid[-1]:
            axes.set_xlabel("layer t")
        for axes in grid[:, 0]:
            axes.set_ylabel("pruned layer k")
        bar = figure.colorbar(images[0], ax=grid, shrink=0.6, extend="both")
        ticks = (0.25, 0.5, 1.0, 2.0, 4.0)
        bar.set_ticks(np.log(ticks).tolist(), labels=[f"{tick:g}" for tick in ticks])
        figure.suptitle(title)
    return figure


def _short(value: float) -> str:
    if 0.01 <= value < 9.995:
        return f"{value:.2f}"
    return f"{value:.0f}" if 1 < value < 999.5 else f"{value:.0e}".replace("e+0", "e")


def _geometric(values: Any) -> Curve:
    """Returns the geometric mean over prompts with one standard error."""
    logs = Estimate.of(np.log(np.asarray(values, float)))
    mean, error = np.exp(logs.mean), np.exp(logs.standard_error)
    return Curve(mean, mean / error, mean * error)
