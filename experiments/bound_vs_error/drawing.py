"""Figures of generalisation errors and their bounds, by learner and by pool size."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from icltheory.plotting import (
    COLOURS,
    STYLE,
    Curve,
    error_curves,
    heat_map,
    panel_grid,
)

__all__ = ["SamplePanel", "bounds_against_samples", "bounds_by_learner"]


class SamplePanel(NamedTuple):
    """One panel with the error and its bounds against the pool size.

    Attributes:
        num_samples: Pool sizes N.
        error: The true error.
        bounds: Bounds, by name; formulas are drawn dashed.
        slopes: Powers of N drawn as guides, each with the value it starts from.
    """

    num_samples: Sequence[int]
    error: Curve
    bounds: Mapping[str, Curve]
    slopes: Mapping[float, float] = {}


def bounds_by_learner(
    panels: Mapping[str, tuple[Curve, Mapping[str, Sequence[float]]]],
    learners: Sequence[str],
    title: str,
):
    """Draws the ratio of each bound to the true error, for each learner.

    Args:
        panels: For each panel, the true errors over the learners and the bounds.
        learners: Names of the learners, the rows of every panel.
        title: What was measured.

    Returns:
        The matplotlib figure; a ratio of an infinite bound is an infinity, and one to
        an error that is not positive is left out.

    References:
        Yao et al. 2024, Theorem 2. Verified by
        ``tests/experiments/test_bound_vs_error.py``.
    """
    import matplotlib.pyplot as plt

    widths = [len(bounds) for _, bounds in panels.values()]
    size = (0.95 * sum(widths) + 3.0, 0.27 * len(learners) + 2.2)
    with plt.rc_context({**STYLE, "font.size": 9}):
        figure, grid = plt.subplots(
            1, len(panels), figsize=size, width_ratios=widths, squeeze=False
        )
        labels = list(learners)
        for axes, (name, (error, bounds)) in zip(grid[0], panels.items(), strict=True):
            _ratio_map(axes, labels, error, bounds, name)
            # Only the first panel shows the names of the learners.
            labels = [""] * len(labels)
        grid[0, 0].set_ylabel("learner:  true error")
        figure.suptitle(title)
    return figure


def _ratio_map(axes, learners, error: Curve, bounds, title: str) -> None:
    """Draws the ratios of bounds to the error, one row per learner."""
    mean = np.asarray(error.mean, float)
    ratios = np.stack([np.asarray(values, float) for values in bounds.values()])
    ratios = ratios.T / np.where(mean > 0, mean, np.nan)[:, None]
    rows = [
        f"{learner}:  {value:.2g}" if learner else f"{value:.2g}"
        for learner, value in zip(learners, mean, strict=True)
    ]
    heat_map(
        np.log10(ratios),
        ax=axes,
        rows=rows,
        columns=list(bounds),
        xlabel="",
        ylabel="",
        limit=3.0,
        write=lambda log: f"{10**log:.1f}" if log < 0.99 else f"{10**log:,.0f}",
        title=title,
    )
    axes.tick_params(axis="x", labelrotation=90)


def bounds_against_samples(
    panels: Mapping[str, SamplePanel], trivial: float, title: str
):
    """Draws the true error and its bounds against the pool size on log-log axes.

    Args:
        panels: What each panel shows, by its title.
        trivial: What bounds the error anyway, drawn as a line.
        title: What was measured.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Theorem 2. Verified by
        ``tests/experiments/test_bound_vs_error.py``.
    """
    size = (4.0, 3.9)
    with panel_grid(panels, 2, title, size, legend=False) as (figure, shown, _):
        for axes, panel in zip(shown, panels.values(), strict=True):
            _sample_panel(axes, panel, trivial)
    return figure


def _sample_panel(axes, panel: SamplePanel, trivial: float) -> None:
    N = np.asarray(panel.num_samples, float)
    curves = {"true error": panel.error, **panel.bounds}
    colours = dict(zip(curves, itertools.cycle(COLOURS), strict=False))
    curves["trivial bound"] = Curve(np.full(len(N), trivial), exact=True)
    # If the error's interval contains 0, the band ends slightly below the error.
    error = np.asarray(panel.error.mean, float)
    low = np.maximum(np.asarray(panel.error.low, float), error / 30)
    curves["true error"] = panel.error._replace(low=low)
    values = np.concatenate([np.asarray(c.mean, float) for c in curves.values()])
    values = values[np.isfinite(values) & (values > 0)]
    error_curves(
        {name: curve._replace(x=N) for name, curve in curves.items()},
        ax=axes,
        xlabel="demonstrations N",
        ylabel="loss",
        log_x=True,
        ylim=(float(values.min()) / 3, 1.5 * float(values.max())),
        colours={**colours, "trivial bound": "0.5"},
    )
    for power, start in panel.slopes.items():
        guide = start * (N / N[0]) ** power
        axes.plot(N, guide, color="grey", lw=0.9, alpha=0.7)
        axes.annotate(
            rf"$N^{{{power:g}}}$",
            (N[0], guide[0]),
            (0, -14),
            fontsize=8,
            textcoords="offset points",
            color="grey",
            va="center",
        )
