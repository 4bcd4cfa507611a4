"""Figures of errors and label weights by position in the prompt."""

from collections.abc import Mapping

import numpy as np

from experiments._frame.looks import WIDTH
from experiments.position.config import Config
from experiments.position.shape import Shape
from icltheory.plotting import Curve, error_curves, panel_grid
from icltheory.statistics import Estimate

__all__ = ["errors_by_place", "weights_by_place"]

_ROWS = {
    "relevant": "one relevant example",
    "wrong": "one wrong example",
}
_COLUMNS = {
    "layer": "linear stacks (causal)",
    "GPT-2": "GPT-2 trained on regression",
}


def errors_by_place(
    config: Config,
    found: Mapping[tuple[str, str], Shape],
    exact: Mapping[tuple[str, str], np.ndarray],
):
    """Draws errors against the position of the special example.

    Args:
        config: The level of the intervals.
        found: The shape of every curve.
        exact: Errors of the linear stacks given the inputs, drawn dashed.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Remark 1. Verified by ``tests/experiments/test_position.py``.
    """
    titles = [
        f"{column}\n{row}" for row in _ROWS.values() for column in _COLUMNS.values()
    ]
    title = "Error by the place of one special example (last place: next to the query)"
    size = (WIDTH / 2, 2.5)
    with panel_grid(titles, 2, title, size, legend=False) as (_, shown, _):
        for place, axes in enumerate(shown):
            special, family = [*_ROWS][place // 2], [*_COLUMNS][place % 2]
            curves = {}
            for (name, kind), shape in found.items():
                if kind != special or family not in name:
                    continue
                ends = shape.by_place.interval(config.level)
                x = np.arange(1, len(shape.by_place.mean) + 1)
                curves[_short(name)] = Curve(shape.by_place.mean, *ends, x=x)
                if (name, kind) in exact:
                    mean = Estimate.of(exact[name, kind]).mean
                    axes.plot(x, mean, ":", color="0.2", linewidth=1, zorder=3)
            error_curves(
                curves, ax=axes, xlabel="place", ylabel="squared error / d", log=False
            )
            axes.set_title(titles[place], fontsize=9)
            axes.locator_params(axis="x", integer=True)
    return shown[0].figure


def weights_by_place(
    config: Config,
    weights: Mapping[int, np.ndarray],
    limits: Mapping[int, np.ndarray],
):
    """Draws the mean weight of a label by position, with its limit in long prompts.

    Args:
        config: The step size.
        weights: Measured weights by number of layers.
        limits: Their limits, drawn dashed.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Remark 1. Verified by ``tests/experiments/test_position.py``.
    """
    title = (
        "Weight of a label in causal linear attention, and its limit in long prompts\n"
        f"(step size {config.step_size:g}; dashed: Laguerre polynomial)"
    )
    size = (0.7 * WIDTH, 3.4)
    with panel_grid(["weights"], 1, title, size, legend=False) as (_, shown, _):
        curves = {}
        for layers, measured in weights.items():
            x = (np.arange(len(measured)) + 0.5) / len(measured)
            curves[f"L = {layers}"] = Curve(measured / layers, x=x)
            shown[0].plot(x, limits[layers] / layers, "--", color="0.2", zorder=3)
        error_curves(
            curves,
            ax=shown[0],
            xlabel="place in the prompt, 1 next to the query",
            ylabel="weight / weight of the last example",
            log=False,
        )
        shown[0].set_title("")
        shown[0].axhline(0, color="0.6", linewidth=0.8)
    return shown[0].figure


def _short(name: str) -> str:
    """Shortens the name of a line within its panel."""
    return name.removeprefix("GPT-2, ")
