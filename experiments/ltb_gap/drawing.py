"""Figures of the gap between attention with and without an MLP, and its landscape."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory.plotting import COLOURS, METHODS, STYLE, name_ends
from icltheory.plotting.style import colours, plain_log_axis

__all__ = ["GapPanel", "excess_hills", "gap_panels", "gap_phases"]

_NAMES = {
    "lsa": ("attention alone", METHODS["LSA"]),
    "ltb": ("with an MLP", METHODS["LTB"]),
    "bayes": ("Bayes", METHODS["Bayes"]),
}


class GapPanel(NamedTuple):
    """The data of one panel: risks along one axis.

    Attributes:
        label: What varies.
        x: Where the lines are.
        lines: Risk of the best ``"lsa"`` and ``"ltb"`` and of ``"bayes"``.
        bounds: Lower and upper bound on the risk of the best LSA.
        dots_x: Where models were trained.
        dots: Centre, low and high of the trained ``"lsa"`` and ``"ltb"``.
        log: Whether the axis is logarithmic.
    """

    label: str
    x: Sequence[float]
    lines: Mapping[str, Any]
    bounds: tuple[Any, Any]
    dots_x: Sequence[float]
    dots: Mapping[str, tuple[Any, Any, Any]]
    log: bool = True


def gap_panels(panels: Sequence[GapPanel], title: str, seeds: int):
    """Draws exact risks as lines and trained models as dots, one panel per axis.

    Args:
        panels: The panels.
        title: What stays fixed.
        seeds: Seeds behind an interval.

    Returns:
        The matplotlib figure.

    References:
        Zhang, Wu and Bartlett 2024, Theorem 4.1. Verified by
        ``tests/experiments/test_ltb_gap.py``.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(2, 2, figsize=(9.6, 7.0))
        for axes, panel in zip(grid.flat, panels, strict=True):
            axes.fill_between(
                panel.x,
                *panel.bounds,
                color=_NAMES["lsa"][1],
                alpha=0.15,
                lw=0,
                label="bounds on the best LSA (Theorem 4.1)",
            )
            for name, values in panel.lines.items():
                label, colour = _NAMES[name]
                style = "--" if name == "bayes" else "-"
                axes.plot(panel.x, values, style, color=colour, label=f"best: {label}")
            for name, (centre, low, high) in panel.dots.items():
                axes.errorbar(
                    panel.dots_x,
                    centre,
                    yerr=np.clip([centre - low, high - centre], 0, None),
                    fmt="o" if name == "lsa" else "s",
                    ms=5,
                    capsize=3,
                    color=_NAMES[name][1],
                    mec="white",
                    label=f"trained: {_NAMES[name][0]}",
                )
            if panel.log:
                axes.set_xscale("log")
                axes.set_xticks(panel.dots_x, [f"{x:g}" for x in panel.dots_x])
                axes.set_xticks([], minor=True)
            _limits(axes, panel)
            name_ends(
                axes,
                [(values[-1], *_NAMES[name]) for name, values in panel.lines.items()],
            )
            axes.set(xlabel=panel.label, ylabel="risk, noise included")
        figure.suptitle(
            f"{title}\nlines: exact risk of the best model; shaded: bounds of Theorem "
            "4.1 on the best attention alone (LSA)\ndots: trained, geometric mean and "
            f"90 % interval of {seeds} random starts",
            fontsize=10,
        )
    return figure


def _limits(axes, panel: GapPanel) -> None:
    """Sets a log axis around the lines and dots; bounds may lie outside."""
    values = [*panel.lines.values(), *(dots[0] for dots in panel.dots.values())]
    low = min(float(np.min(v)) for v in values)
    high = max(float(np.max(v)) for v in values)
    plain_log_axis(axes.yaxis, high / low)
    axes.set_ylim(low / 1.3, high * 1.3)


def gap_phases(
    mean_norms: Any,
    examples: Any,
    ratio: Any,
    closest: Any,
    regions: Sequence[str],
    title: str,
):
    """Draws the ratio of the best LSA's risk to the best LTB's over two quantities.

    Args:
        mean_norms: Columns.
        examples: Rows.
        ratio: Risk of the best LSA over that of the best LTB.
        closest: Index of the region of each point.
        regions: Names of the regions; their borders are drawn.
        title: What stays fixed.

    Returns:
        The matplotlib figure.

    References:
        Zhang, Wu and Bartlett 2024, Theorem 4.1. Verified by
        ``tests/experiments/test_ltb_gap.py``.
    """
    import matplotlib.pyplot as plt
    from matplotlib.colors import LogNorm

    ratio, closest = np.asarray(ratio), np.asarray(closest)
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, axes = plt.subplots(figsize=(8, 5.6))
        top = max(10.0, float(ratio.max()))
        mesh = axes.pcolormesh(
            mean_norms, examples, ratio, norm=LogNorm(1, top), cmap="viridis"
        )
        figure.colorbar(mesh, label="risk of the best LSA / risk of the best LTB")
        lines = axes.contour(
            mean_norms, examples, ratio, [1.01, 1.1, 2, 10, 100], colors="white"
        )
        axes.clabel(lines, fmt=lambda x: f"{x:g}", fontsize=8)
        for i, name in enumerate(regions):
            inside = closest == i
            if inside.mean() < 0.01:
                continue
            axes.contour(
                mean_norms, examples, inside, [0.5], colors=COLOURS[2], linewidths=1
            )
            row, column = (int(np.median(index)) for index in np.nonzero(inside))
            edge = column < len(mean_norms) // 6
            axes.annotate(
                name,
                (mean_norms[0 if edge else column], examples[row]),
                xytext=(4 if edge else 0, 0),
                textcoords="offset points",
                ha="left" if edge else "center",
                va="center",
                fontsize=8,
                bbox={"boxstyle": "round", "fc": "white", "ec": COLOURS[2]},
            )
        axes.set(
            xscale="log",
            yscale="log",
            # There is no prompt without an example, so the axis begins at M = 1.
            ylim=(float(np.min(examples)), float(np.max(examples))),
            xlabel="length of the prior mean, $\\|\\beta^*\\|$",
            ylabel="examples, M",
            title=f"What an MLP saves ({title})\nboxes: the construction whose "
            "closed-form bound is the least there",
        )
    return figure


def excess_hills(arcs: Mapping[float, Any], title: str):
    """Draws the excess risk along the arc from a spurious minimum to a best LTB.

    Args:
        arcs: For each ratio phi_2 / phi_1, the excess over that of the first point, at
            even angles from 0 to 90 degrees.
        title: What stays fixed.

    Returns:
        The matplotlib figure.

    References:
        Zhang, Wu and Bartlett 2024, remarks after Theorem 6.3. Verified by
        ``tests/experiments/test_ltb_gap.py``.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7, 4.6))
        for (ratio, excess), colour in zip(arcs.items(), colours(1), strict=False):
            angles = np.linspace(0, 90, len(excess))
            axes.plot(
                angles, excess, color=colour, label=f"$\\phi_2 / \\phi_1$ = {ratio:g}"
            )
        axes.axhline(1, color="grey", ls=":", lw=1)
        plain_log_axis(axes.yaxis, 1e2)
        axes.set_ylim(1e-2, 2 * max(float(np.max(excess)) for excess in arcs.values()))
        axes.set_xlim(0, 90)
        axes.set_xticks([0, 30, 60, 90])
        axes.set(
            xlabel="angle in degrees: 0 is the spurious point, 90 a best LTB",
            ylabel="excess risk / excess of the spurious point",
            title="Least excess risk of an LTB on the way to the best one\n" + title,
        )
        axes.legend()
    return figure
