"""Norms of implicit updates along depth, and how pruning changes them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from icltheory.plotting import heat_map
from icltheory.plotting.style import COLOURS, STYLE, plain_log_axis
from icltheory.statistics import Estimate

__all__ = ["norms_along_depth", "ratio_heat_maps"]


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
    import matplotlib.pyplot as plt

    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    with plt.rc_context({**STYLE, "font.size": 9, "lines.linewidth": 1.5}):
        figure, grid = plt.subplots(
            rows,
            columns,
            figsize=(3.3 * columns, 2.5 * rows + 0.6),
            sharex=True,
            squeeze=False,
        )
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        entries: dict[str, Any] = {}
        for axes, (name, lines) in zip(grid.flat, panels.items(), strict=False):
            for order, (label, values) in enumerate(lines.items()):
                logs = Estimate.of(np.log(np.asarray(values, float)))
                mean, error = np.exp(logs.mean), np.exp(logs.standard_error)
                layers = np.arange(len(mean))
                colour = COLOURS[order % len(COLOURS)]
                # The first line stays visible under those that agree with it.
                line = axes.plot(
                    layers,
                    mean,
                    "o-",
                    color=colour,
                    markersize=6 if order == 0 else 3,
                    linewidth=3 if order == 0 else 1.3,
                    alpha=0.5 if order == 0 else 1.0,
                )
                band = mean / error, mean * error
                axes.fill_between(layers, *band, color=colour, alpha=0.2)
                entries.setdefault(label, line[0])
            plain_log_axis(axes.yaxis, _span(lines.values()))
            axes.set_xticks(layers)
            axes.set_title(name)
        for axes in grid[-1]:
            axes.set_xlabel("layer t")
        figure.legend(
            entries.values(), entries, loc="outside lower center", ncols=len(entries)
        )
        figure.supylabel(ylabel)
        figure.suptitle(title)
    return figure


def ratio_heat_maps(panels: Mapping[str, Any], title: str, columns: int = 3):
    """Draws one heat map a panel of the ratio of layer t when layer k is pruned.

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

    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    style = {**STYLE, "font.size": 9, "axes.grid": False}
    with plt.rc_context(style):
        figure, grid = plt.subplots(
            rows,
            columns,
            figsize=(3.3 * columns + 0.6, 3.0 * rows + 0.4),
            squeeze=False,
        )
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
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
        bar = figure.colorbar(images[0], ax=grid, shrink=0.6)
        ticks = (0.25, 0.5, 1.0, 2.0, 4.0)
        bar.set_ticks(np.log(ticks).tolist(), labels=[f"{tick:g}" for tick in ticks])
        figure.suptitle(title)
    return figure


def _short(value: float) -> str:
    if 0.01 <= value < 9.995:
        return f"{value:.2f}"
    return f"{value:.0f}" if 1 < value < 999.5 else f"{value:.0e}".replace("e+0", "e")


def _span(lines) -> float:
    means = np.exp([np.log(np.asarray(v, float)).mean(axis=0) for v in lines])
    return float(means.max() / means.min())
