"""Figures of risk against layers, and of needed layers against examples."""

from collections.abc import Mapping, Sequence
from typing import Any

from icltheory.plotting import COLOURS, METHODS, STYLE, name_ends
from icltheory.plotting.grid import axes_in_rows

__all__ = ["layers_against_examples", "risk_against_layers"]

Points = tuple[Sequence[float], Sequence[float]]


def risk_against_layers(
    panels: Mapping[str, tuple[Mapping[str, Points], Mapping[str, Any]]], title: str
):
    """Draws exact lines and the risks of trained stacks, one panel per setting.

    Args:
        panels: For each setting its exact lines, as layers and risks by name, and its
            trained stacks, as layers, risks and half widths of intervals by name.
        title: What is shown.

    Returns:
        The matplotlib figure.

    References:
        Verified by ``tests/experiments/test_depth.py``.
    """
    import matplotlib.pyplot as plt

    looks = zip("oDs^", (COLOURS[6], COLOURS[3], COLOURS[0], COLOURS[2]), strict=True)
    marks: dict[str, tuple[str, str]] = {}
    with plt.rc_context({**STYLE, "font.size": 9}):
        figure, grid = axes_in_rows(len(panels), len(panels), (3.4, 3.9))
        for axes, (name, (lines, trained)) in zip(grid[0], panels.items(), strict=True):
            for method, (layers, risks) in lines.items():
                colour = METHODS[method]
                axes.plot(layers, risks, "--", color=colour, label=f"{method} (exact)")
            for method, (layers, risks, errors) in trained.items():
                if method not in marks:
                    marks[method] = next(looks)
                marker, colour = marks[method]
                style = {"color": colour, "markersize": 4.5, "linewidth": 1.0}
                axes.errorbar(
                    layers,
                    risks,
                    errors,
                    fmt=marker,
                    label=f"{method}, trained",
                    **style,
                )
            axes.set(yscale="log", xlabel="layers L", title=name)
            axes.set_xticks(sorted({n for n, *_ in lines.values() for n in n}))
        # The axis range ignores intervals, since one that reaches zero has no
        # logarithm.
        lowest = min(
            min(points[1], default=1.0)
            for both in panels.values()
            for side in both
            for points in side.values()
        )
        for axes in grid[0]:
            axes.set_ylim(lowest / 3, 1.5)
        grid[0][0].set_ylabel("risk / d")
        handles = grid[0][0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=3, fontsize=8)
        figure.suptitle(title, fontsize=10)
    return figure


def layers_against_examples(
    exact: Mapping[float, Points], limit: Mapping[float, Points], title: str
):
    """Draws the gradient steps needed for an error, against examples per dimension.

    Args:
        exact: Examples per dimension and least layers, by error.
        limit: The same of large prompts, where layers are any real number.
        title: What is shown.

    Returns:
        The matplotlib figure.

    References:
        Verified by ``tests/experiments/test_depth.py``.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6.8, 4.2))
        ends = []
        for colour, (error, (ratios, depths)) in zip(
            COLOURS[1:], exact.items(), strict=False
        ):
            axes.plot(ratios, depths, color=colour, drawstyle="steps-post")
            axes.plot(*limit[error], "--", color=colour, linewidth=1.0)
            if depths:
                ends.append((float(depths[-1]), f"error {error:g}", colour))
        axes.axvline(1, color="grey", linewidth=0.8, linestyle=":", zorder=0)
        axes.annotate(
            "N = d",
            (1, 1),
            (3, -10),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            color="0.35",
            fontsize=8,
        )
        axes.set(xscale="log", yscale="log", xlabel="examples per dimension N / d")
        axes.set_ylabel("gradient steps L")
        ticks = [0.5, 1, 2, 5, 10, 20]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
        axes.minorticks_off()
        name_ends(axes, ends)
        axes.set_title(title, fontsize=10)
    return figure
