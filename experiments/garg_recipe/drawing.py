"""Figures that compare recipes with the baseline."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from icltheory.plotting import COLOURS, STYLE, Curve, error_curves
from icltheory.plotting.style import colours

__all__ = ["Ratio", "recipes_beside_baseline"]


class Ratio(NamedTuple):
    """Ratio of a setting's excess risk to the baseline's, with its interval.

    Attributes:
        mean: The ratio.
        low: Lower end of its interval.
        high: Upper end.
        united: Whether it is of a recipe that unites changes, drawn in colour.
    """

    mean: float
    low: float
    high: float
    united: bool = False


def recipes_beside_baseline(
    curves: Mapping[str, tuple[Any, Curve]], ratios: Mapping[str, Ratio], title: str
):
    """Draws errors over training steps, and the ratio of each change to the baseline.

    Args:
        curves: Prompts seen and the value there, by recipe.
        ratios: Values at the end over the baseline's, drawn from the smallest to the
            largest; those that are not finite are named last, without a dot.
        title: What was measured.

    Returns:
        The matplotlib figure.

    References:
        Verified by ``tests/experiments/test_figures.py``.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        height = 1.6 + 0.27 * len(ratios)
        figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, max(height, 4.2)))
        error_curves(
            {name: curve._replace(x=seen) for name, (seen, curve) in curves.items()},
            ax=left,
            xlabel="prompts seen",
            ylabel="distance / d, mean over k",
            colours=dict(zip(curves, colours(), strict=False)),
        )
        left.xaxis.set_major_formatter("{x:,.0f}")
        left.locator_params(axis="x", nbins=5)
        _dots(right, ratios)
        figure.suptitle(title)
    return figure


def _dots(axes, ratios: Mapping[str, Ratio]) -> None:
    ratios = dict(sorted(ratios.items(), key=lambda item: _order(item[1].mean)))
    for place, ratio in enumerate(ratios.values()):
        colour = COLOURS[1] if ratio.united else COLOURS[0]
        if np.isfinite(ratio.mean):
            axes.plot([ratio.low, ratio.high], [place, place], color=colour)
            axes.plot(ratio.mean, place, "o", color=colour)
    axes.axvline(1.0, color="grey", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(ratios)), list(ratios))
    axes.invert_yaxis()
    axes.set_xscale("log")
    ends = [x for r in ratios.values() for x in r[:3] if np.isfinite(x)] + [1.0]
    ticks = [x for x in _TICKS if 0.8 * min(ends) <= x <= 1.25 * max(ends)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(
        "distance at the end / that of the baseline\n(bars: 2 standard errors)"
    )


def _order(value: float) -> float:
    return value if np.isfinite(value) else np.inf


_TICKS = tuple(m * 10.0**e for e in range(-3, 4) for m in (1, 1.5, 2, 3, 5, 7))
