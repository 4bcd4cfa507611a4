"""Figures of model errors and theoretical risks, before and after removals."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments._frame.looks import WIDTH
from experiments.ltb_gpt2 import removal
from icltheory.plotting import COLOURS, STYLE, name_ends, panel_grid
from icltheory.plotting.grid import entries_of, legend_below
from icltheory.plotting.style import plain_log_axis

__all__ = ["Table1Setting", "models_between_lines", "risks_by_depth"]


class Table1Setting(NamedTuple):
    """Data of one group of the figure.

    Attributes:
        dots: Error of every seed, by model.
        intervals: Mean and both ends of its interval, by model.
        lines: Exact risks, by name.
        published: What a paper reports for a model, if it does.
    """

    dots: Mapping[str, Sequence[float]]
    intervals: Mapping[str, tuple[float, float, float]]
    lines: Mapping[str, float]
    published: Mapping[str, float] = {}


def models_between_lines(
    settings: Mapping[str, Table1Setting], ylabel: str, title: str
):
    """Draws the errors of each model's seeds in each setting, with theoretical risks.

    Args:
        settings: The groups by their name; all have the same models and lines. Lines
            at or below zero are left out.
        ylabel: What the axis shows.
        title: What was measured.

    Returns:
        The matplotlib figure.

    References:
        Zhang, Wu and Bartlett 2024, Table 1. Verified by
        ``tests/experiments/test_ltb_gpt2.py``.
    """
    import matplotlib.pyplot as plt

    models = list(next(iter(settings.values())).dots)
    dashes = ("-", "--", "-.", ":", (0, (1, 1)), (0, (5, 1)))
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8.2, 4.8))
        for place, setting in enumerate(settings.values()):
            names = list(setting.lines)
            for name, style in zip(names, itertools.cycle(dashes), strict=False):
                value = setting.lines[name]
                if value > 0:
                    ends = (place - 0.42, place + 0.42)
                    axes.hlines(
                        value, *ends, color="grey", linestyle=style, label=name, lw=1.4
                    )
            for index, model in enumerate(models):
                _model(axes, setting, model, _offset(place, index, len(models)), index)
        axes.set_xticks(range(len(settings)), list(settings))
        axes.set_xlim(-0.5, len(settings) - 0.5)
        axes.grid(visible=False, axis="x")
        axes.set(ylabel=ylabel, title=title)
        plain_log_axis(axes.yaxis, _span(axes))
        last = list(settings.values())[-1].lines
        name_ends(axes, [(v, name, "0.35") for name, v in last.items() if v > 0])
        once = entries_of([axes])
        once = {name: handle for name, handle in once.items() if name not in last}
        legend_below(figure, once, 2)
    return figure


_REMOVED = {
    (removal.PRIOR, removal.EVERYWHERE): r"$\langle\beta^*, x\rangle$, from all",
    (removal.PRIOR, removal.READ_OUT): "the same, from the read-out alone",
    (removal.PRIOR, removal.BLOCKS): "the same, from the blocks alone",
    (
        removal.INPUT,
        removal.EVERYWHERE,
    ): r"$\langle v, x\rangle$, $v \perp \beta^*$, from all",
    (removal.RANDOM, removal.EVERYWHERE): "a random direction, from all",
}


def risks_by_depth(
    found: Mapping[str, "removal.Removals"], lines: Mapping[str, float], title: str
):
    """Draws the error after each removal against its depth, one panel per model.

    Args:
        found: Removals by the name of the model.
        lines: Exact risks, by name.
        title: What was measured.

    Returns:
        The matplotlib figure.

    References:
        Verified by ``tests/experiments/test_ltb_gpt2_removal.py``.
    """
    size = (WIDTH / 2, 3.6)
    with panel_grid(list(found), 2, title, size) as (figure, shown, _):
        for axes, one in zip(shown, found.values(), strict=True):
            for index, (kind, label) in enumerate(_REMOVED.items()):
                _removed(axes, one, kind, label, index)
            axes.axhline(one.before.mean, color="0.2", label="as trained")
            for value in lines.values():
                axes.axhline(value, color="grey", linestyle=":", linewidth=1.2)
            axes.set(
                xlabel="depth of the removal (0: embedding)", ylabel="squared error"
            )
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.set_yscale("log")
            plain_log_axis(axes.yaxis, _span(axes))
        name_ends(shown[-1], [(value, name, "0.35") for name, value in lines.items()])
    figure.suptitle(title, fontsize=9)
    return figure


def _removed(axes, one, kind: tuple[str, str], label: str, index: int) -> None:
    points = {r.depth: s for r, s in one.after.items() if (r.scalar, r.route) == kind}
    x = np.array(list(points), float)
    means = np.array([score.mean for score in points.values()])
    ends = np.array([score.interval for score in points.values()])
    # On a log axis, an end at or below zero cannot be drawn.
    below = means - np.maximum(ends[:, 0], means / 10)
    axes.errorbar(
        x + 0.06 * (index - 2),
        means,
        [below, ends[:, 1] - means],
        fmt="osD^v"[index] + "-",
        color=COLOURS[1 + index],
        ms=5,
        lw=1.2,
        capsize=2,
        label=label,
    )


def _offset(place: int, index: int, count: int) -> float:
    return place + 0.4 * (index - (count - 1) / 2) / max(count - 1, 1)


def _model(axes, setting: Table1Setting, model: str, x: float, index: int) -> None:
    """Draws seeds as dots, their mean with its interval, and the published error."""
    colour = COLOURS[(1 + index) % len(COLOURS)]
    values = np.asarray(setting.dots[model], dtype=float)
    places = np.full(len(values), x - 0.035)
    axes.plot(
        places, values, "o", color=colour, alpha=0.6, ms=6, label=f"{model}, each seed"
    )
    mean, low, high = setting.intervals[model]
    # On a log axis, an end at or below zero cannot be drawn.
    below = mean - max(low, mean / 100)
    axes.errorbar(
        x + 0.035, mean, [[below], [high - mean]], fmt="_", color=colour, ms=13, mew=2
    )
    if model in setting.published:
        axes.plot(
            x,
            setting.published[model],
            "D",
            ms=8,
            mfc="none",
            color=colour,
            label=f"{model}, published (d, M, noise unknown)",
        )


def _span(axes) -> float:
    low, high = axes.dataLim.intervaly
    return high / low if low > 0 else np.inf
