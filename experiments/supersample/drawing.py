"""Figures of bounds against errors, and of both along the varied quantity."""

from collections.abc import Sequence

import numpy as np

from experiments._frame.looks import WIDTH, page
from experiments.supersample.measure import Case
from icltheory.plotting import COLOURS, panel_grid

__all__ = ["along", "beside"]

_AXES = {
    "gradient descent": ("steps", "log"),
    "GPT-2, training": ("training step", "symlog"),
    "GPT-2, shots": ("demonstrations N", "linear"),
    "GPT-2, label noise": ("variance of label noise", "linear"),
    "GPT-2, rank kept": ("rank kept of all matrices", "log"),
    "pattern transformer": ("training step", "linear"),
    "language model, topic, meaningful labels": ("demonstrations N", "linear"),
    "language model, topic, nonce labels": ("demonstrations N", "linear"),
}
_MARKS = "osD^vPX<>*"


def beside(cases: Sequence[Case]):
    """Draws the limits of both bounds against the error, one dot per learner.

    Args:
        cases: The learners.

    Returns:
        The matplotlib figure.

    References:
        Verified by ``tests/experiments/test_supersample.py``.
    """
    families = list(dict.fromkeys(case.family for case in cases))
    titles = ["square-root bound", "optimal bound"]
    title = "Upper limits of the bounds against the error on new points"
    size = (WIDTH / 2 - 0.15, 3.4)
    with panel_grid(titles, 2, title, size) as (_, shown, _):
        for axes, of in zip(
            shown, (lambda c: c.square_root, lambda c: c.optimal), strict=True
        ):
            for place, family in enumerate(families):
                own = [case for case in cases if case.family == family]
                axes.plot(
                    [max(abs(case.error.mean), 1e-4) for case in own],
                    [float(of(case).upper) for case in own],
                    _MARKS[place % len(_MARKS)],
                    color=COLOURS[place % len(COLOURS)],
                    markersize=4,
                    alpha=0.8,
                    label=family,
                )
            ends = np.array([1e-4, 1.0])
            axes.plot(ends, ends, "-", color="0.5", linewidth=0.8, label="equal")
            axes.plot(ends, 2 * ends, ":", color="0.5", linewidth=0.8, label="twice")
            axes.set(xscale="log", yscale="log", xlim=(8e-5, 1.1), ylim=(8e-4, 1.3))
            axes.set_xlabel("|error|")
        shown[0].set_ylabel("upper confidence limit of the bound")
    return shown[0].figure


def along(cases: Sequence[Case], confidence: float):
    """Draws error, bounds and loss over the varied quantity of each family.

    Args:
        cases: The learners.
        confidence: Level of the intervals of the errors.

    Returns:
        The matplotlib figure.

    References:
        Verified by ``tests/experiments/test_supersample.py``.
    """
    families = {
        family: [case for case in cases if case.family == family]
        for family in _AXES
        if any(case.family == family for case in cases)
    }
    title = "Error on new points of a task, its bounds, and the loss on the prompt"
    with page(list(families), 2, title, 2.5) as (shown, _):
        for axes, (family, own) in zip(shown, families.items(), strict=True):
            _panel(axes, family, own, confidence)
        for axes in shown[::2]:
            axes.set_ylabel("loss in [0, 1]")
    return shown[0].figure


def _panel(axes, family, own, confidence) -> None:
    x = [case.x for case in own]
    ends = np.array([case.error.interval(confidence) for case in own])
    mean = np.array([case.error.mean for case in own])
    bars = np.abs(ends.T - mean)
    axes.errorbar(
        x, mean, bars, fmt="o-", color=COLOURS[0], markersize=3, label="error"
    )
    lines = (
        ("square-root bound, limit", COLOURS[1], "s-", lambda c: c.square_root.upper),
        ("optimal bound, limit", COLOURS[2], "D-", lambda c: c.optimal.upper),
        ("loss on the prompt", "0.55", "x:", lambda c: c.train),
    )
    for label, colour, style, of in lines:
        values = [float(of(case)) for case in own]
        axes.plot(x, values, style, color=colour, markersize=3, label=label)
    name, scale = _AXES[family]
    axes.set_xscale(scale, **({"linthresh": 100} if scale == "symlog" else {}))
    axes.set_xticks(x, _ticks(x), fontsize=8)
    axes.set_xticks([], minor=True)
    if scale == "symlog":
        axes.set_xlim(min(x) - 10, 1.3 * max(x))
    axes.set_xlabel(name)
    axes.axhline(0, color="0.6", linewidth=0.8)


def _ticks(x: Sequence[float]) -> list[str]:
    """Returns the labels of an axis; long ones that would touch the next are empty."""
    nexts = [*x[1:], np.inf]
    close = [v >= 1000 and after < 2 * v for v, after in zip(x, nexts, strict=True)]
    return ["" if left else f"{v:g}" for v, left in zip(x, close, strict=True)]
