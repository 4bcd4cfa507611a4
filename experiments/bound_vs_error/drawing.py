"""Generalisation errors beside their bounds, by learner and against the pool size."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory.plotting import Curve
from icltheory.plotting.style import COLOURS, STYLE

__all__ = ["SamplePanel", "bounds_against_samples", "bounds_by_learner"]

_MARKERS = "sDv^<>ph"


class SamplePanel(NamedTuple):
    """One panel of curves against the pool size.

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
    trivial: float,
    title: str,
):
    """Draws the true error of each learner and every bound on it, on a log axis.

    A bound that is infinite is a hollow marker on the upper edge; an interval of the
    error that reaches below zero is cut at the lower edge.

    Args:
        panels: For each panel, the true errors over the learners and the bounds.
        learners: Names of the learners, the columns of every panel.
        trivial: What bounds the error anyway, drawn as a line.
        title: What was measured.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Theorem 2. Verified by
        ``tests/experiments/test_bound_vs_error.py``.
    """
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(n for _, bounds in panels.values() for n in bounds))
    width, height = 0.56 * len(learners) + 3.6, 2.7 * len(panels) + 1.4
    with plt.rc_context({**STYLE, "font.size": 9}):
        figure, grid = plt.subplots(
            len(panels),
            1,
            figsize=(max(7.0, width), height),
            sharex=True,
            squeeze=False,
            height_ratios=[1.6] + [1.0] * (len(panels) - 1),
        )
        entries: dict[str, Any] = {}
        for axes, (name, (error, bounds)) in zip(
            grid[:, 0], panels.items(), strict=True
        ):
            axes.set_yscale("log")
            top = _limits(axes, error, bounds, trivial)
            _bars(axes, np.arange(len(learners)), error, "true error")
            for i, (label, values) in enumerate(bounds.items()):
                shift = 0.8 * ((i + 1) / (len(bounds) + 1) - 0.5)
                _markers(axes, values, shift, top, label, names.index(label))
            axes.axhline(trivial, color="grey", ls=":", lw=1.2, label="trivial bound")
            axes.set(title=name, ylabel="loss")
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                entries.setdefault(label, handle)
        entries = {"true error": entries.pop("true error"), **entries}
        grid[-1, 0].set_xticks(np.arange(len(learners)), learners, fontsize=7.5)
        grid[-1, 0].set_xlim(-0.6, len(learners) - 0.4)
        figure.legend(entries.values(), entries, fontsize=8, loc="outside right center")
        figure.suptitle(title)
    return figure


def _markers(axes, values, shift: float, top: float, label: str, style: int) -> None:
    """One bound over the learners, hollow on the upper edge where it is infinite."""
    values = np.asarray(values, float)
    at = np.arange(len(values)) + shift
    kind = {
        "color": COLOURS[1 + style % (len(COLOURS) - 1)],
        "marker": _MARKERS[style % len(_MARKERS)],
        "ls": "",
        "ms": 4.5,
    }
    infinite = np.isinf(values)
    finite = np.where(infinite, np.nan, values)
    if infinite.all():
        label = f"{label} (infinite)"
    axes.plot(at, finite, mfc="w" if infinite.all() else None, label=label, **kind)
    edge = np.full(infinite.sum(), top)
    (line,) = axes.plot(at[infinite], edge, mfc="w", clip_on=False, **kind)
    line.set_in_layout(False)


def _limits(axes, error: Curve, bounds, trivial: float) -> float:
    """Sets the axis so that all positive values show, and gives its upper end."""
    numbers = [np.asarray(error.mean, float), np.array([trivial])]
    numbers += [np.asarray(v, float) for v in bounds.values()]
    flat = np.concatenate([n[np.isfinite(n) & (n > 0)] for n in numbers])
    top = 10 ** (np.log10(flat.max()) + 0.35)
    axes.set_ylim(max(flat.min() / 2, 2e-5), top)
    return top


def _bars(axes, x, curve: Curve, label: str) -> None:
    """Means with intervals, cut at the lower edge of a log axis."""
    mean = np.asarray(curve.mean, float)
    floor = axes.get_ylim()[0]
    shown = mean > floor
    low = np.maximum(np.asarray(curve.low, float), floor)
    high = np.maximum(np.asarray(curve.high, float), floor)
    x = np.asarray(x)
    axes.errorbar(
        x[shown],
        mean[shown],
        (mean - low)[shown],
        fmt="none",
        color=COLOURS[0],
        capsize=0,
        lw=1.2,
    )
    axes.errorbar(
        x[shown],
        mean[shown],
        [np.zeros(shown.sum()), (high - mean)[shown]],
        fmt="o",
        color=COLOURS[0],
        ms=4.5,
        capsize=2,
        lw=1.2,
        label=label,
    )
    floors = np.full((~shown).sum(), floor)
    (line,) = axes.plot(x[~shown], floors, "v", color=COLOURS[0], ms=5, clip_on=False)
    line.set_in_layout(False)


def bounds_against_samples(
    panels: Mapping[str, SamplePanel], trivial: float, title: str
):
    """Draws the true error and its bounds against the pool size, log on log.

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
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            1,
            len(panels),
            figsize=(4.6 * len(panels) + 2.4, 4.6),
            sharey=True,
            squeeze=False,
        )
        entries: dict[str, Any] = {}
        for axes, (name, panel) in zip(grid[0], panels.items(), strict=True):
            _sample_panel(axes, panel)
            axes.axhline(trivial, color="grey", ls=":", lw=1.2, label="trivial bound")
            axes.set(title=name, xscale="log", yscale="log", xlabel="demonstrations N")
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                entries.setdefault(label, handle)
        grid[0, 0].set_ylabel("loss")
        figure.legend(entries.values(), entries, fontsize=8, loc="outside right center")
        figure.suptitle(title)
    return figure


def _sample_panel(axes, panel: SamplePanel) -> None:
    N = np.asarray(panel.num_samples, float)
    error = np.asarray(panel.error.mean, float)
    kind = {"color": COLOURS[0], "marker": "o", "ms": 4}
    axes.plot(N, error, label="true error", **kind)
    low = np.maximum(np.asarray(panel.error.low, float), error / 30)
    axes.fill_between(N, low, panel.error.high, color=COLOURS[0], alpha=0.2, lw=0)
    for i, (label, curve) in enumerate(panel.bounds.items()):
        values = np.asarray(curve.mean, float)
        values = np.where(np.isfinite(values), values, np.nan)
        colour = COLOURS[1 + i % (len(COLOURS) - 1)]
        style = (
            {"ls": "--", "lw": 1.4}
            if curve.exact
            else {"marker": _MARKERS[i % len(_MARKERS)], "ms": 4}
        )
        axes.plot(N, values, color=colour, label=label, **style)
    for power, start in panel.slopes.items():
        guide = start * (N / N[0]) ** power
        axes.plot(N, guide, color="grey", lw=0.9, alpha=0.7)
        axes.annotate(
            rf"$N^{{{power:g}}}$",
            (N[-1], guide[-1]),
            (3, 0),
            fontsize=8,
            textcoords="offset points",
            color="grey",
            va="center",
        )
