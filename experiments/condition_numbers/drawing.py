"""Figures of condition numbers and singular values, compared with random matrices."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments._frame.looks import key, matrix_look, name_ends, page
from icltheory.linalg import marchenko_pastur_density
from icltheory.plotting import spectrum

__all__ = ["ConditionCurve", "condition_numbers_along_depth", "spectra_beside_chance"]


class ConditionCurve(NamedTuple):
    """Condition numbers of one matrix by layer, with those of a random matrix.

    Attributes:
        layers: Numbers of the layers.
        values: Condition number in each, or in each of several models ``(models,
            layers)``, whose geometric mean is drawn; infinite ones are left out.
        null: Median condition number of random matrices of the shape.
        null_label: The shape.
        ceiling: In each layer, where the rounding of the weights takes over; may be
            empty.
        resolved: Where the smallest singular value exceeds that rounding; drawn
            filled, others hollow. All are filled when left out.
        spread: Lower and upper quantile of random matrices over their median, where
            they spread widely.
    """

    layers: Sequence[int]
    values: Any
    null: float
    null_label: str
    ceiling: Sequence[float] = ()
    resolved: Sequence[bool] = ()
    spread: tuple[float, float] | None = None

    def finite(self) -> np.ndarray:
        """The values as ``(models, layers)``, with NaN in place of infinity."""
        values = np.atleast_2d(np.asarray(self.values, float))
        return np.where(np.isfinite(values), values, np.nan)

    def middle(self) -> np.ndarray:
        """The value of each layer; the geometric mean over several models."""
        values = self.finite()
        return values[0] if len(values) == 1 else np.exp(np.log(values).mean(axis=0))


def condition_numbers_along_depth(
    panels: Mapping[str, Mapping[str, ConditionCurve]], title: str
):
    """Draws one curve per matrix over the layers, and the ratio to a random matrix.

    A matrix has the same colour and marker in every figure. Grey dotted lines are the
    medians of random matrices, one for each shape; dashed ones the ceilings above which
    rounding decides, if any value comes near; the grey region is the spread of random
    square matrices.

    Args:
        panels: For each model, a row of panels, the curve of each matrix.
        title: What is shown.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: If there is no model, or one without a matrix.

    References:
        Yao et al. 2024, Figure 3. Verified by
        ``tests/experiments/test_condition_numbers.py``.
    """
    for name, curves in panels.items():
        if not curves:
            raise ValueError(f"panels: expected matrices of {name}, got none")
    titles = [name for name in panels for _ in range(2)]
    with page(titles, 2, title, 3.2) as (axes, entries):
        for left, right, curves in zip(
            axes[::2], axes[1::2], panels.values(), strict=True
        ):
            for matrix, curve in curves.items():
                _curve(left, matrix, curve, 1.0)
                _curve(right, matrix, curve, curve.null)
            if _rounding(left, curves):
                entries["rounding decides"] = key(linestyle="--", linewidth=0.9)
            _names(left, curves)
            _yardsticks(right, curves)
            left.set_ylabel("condition number")
            right.set_ylabel("ratio to the median of\nrandom matrices of the shape")
            for ax in (left, right):
                ax.set(yscale="log", xlabel="layer")
                ax.xaxis.get_major_locator().set_params(integer=True)
    return axes[0].figure


def spectra_beside_chance(
    panels: Mapping[str, tuple[Any, tuple[int, int]]], title: str
):
    """Draws singular values as histograms with the density of random matrices.

    Args:
        panels: For each panel the singular values of a matrix, and its shape.
        title: What is shown.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: If there is no panel.

    References:
        Marchenko and Pastur (1967). Verified by
        ``tests/experiments/test_condition_numbers.py``.
    """
    with page(panels, 2, title, 2.4) as (axes, _):
        for ax, (s, shape) in zip(axes, panels.values(), strict=True):
            mean_square = np.sum(np.square(s)) / np.prod(shape)
            spectrum(s, _law(shape, mean_square), ax=ax, bins=16)
            ax.get_legend().remove()  # the figure has a common legend
    return axes[0].figure


def _law(shape: tuple[int, int], mean_square: float):
    """Returns the density for random matrices of this mean square, or ``None``."""
    if mean_square == 0:
        return None
    return lambda s: marchenko_pastur_density(s, shape, mean_square**0.5)


def _curve(axes, matrix: str, curve: ConditionCurve, scale: float) -> None:
    _, colour, marker = matrix_look(matrix)
    layers, values = np.asarray(curve.layers), curve.finite() / scale
    mark: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4}
    mean = curve.middle() / scale
    if len(values) == 1:
        axes.plot(layers, mean, "-", label=f"_{matrix}", **mark)
    else:
        axes.plot(layers, mean, "-", label=f"_{matrix}", color=colour)
        for row in values:
            axes.plot(layers, row, linestyle="", alpha=0.6, **mark)
    hidden = ~np.asarray(curve.resolved, bool)
    if hidden.any():
        hollow = {**mark, "markerfacecolor": "w", "linestyle": ""}
        axes.plot(layers[hidden], mean[hidden], **hollow)


def _names(axes, curves: Mapping[str, ConditionCurve]) -> None:
    """Labels the curves of matrices and random matrices at the right edge."""
    ends = []
    for matrix, curve in curves.items():
        name, colour, _ = matrix_look(matrix)
        known = curve.middle()[np.isfinite(curve.middle())]
        ends += [(float(known[-1]), name, colour)] if len(known) else []
    for shape, null in {c.null_label: c.null for c in curves.values()}.items():
        line = {"color": "grey", "linestyle": ":", "linewidth": 1.2}
        axes.axhline(null, label=f"_random {shape}", **line)
        ends.append((float(null), f"random {shape}", "0.4"))
    name_ends(axes, ends)


def _yardsticks(axes, curves: Mapping[str, ConditionCurve]) -> None:
    axes.axhline(1.0, color="grey", linestyle=":", linewidth=1.2)
    spread = next((c.spread for c in curves.values() if c.spread is not None), None)
    if spread is not None:
        axes.axhspan(*spread, color="grey", alpha=0.15, lw=0)
        style = {"fontsize": 8, "color": "0.4", "va": "bottom"}
        across = axes.get_yaxis_transform()
        text = "90 % of random square matrices"
        axes.text(0.01, spread[0], text, transform=across, **style)


def _rounding(axes, curves: Mapping[str, ConditionCurve]) -> bool:
    """Draws the condition numbers above which rounding dominates, if they are near.

    Returns:
        Whether any is near.
    """
    top = max(np.nanmax([*c.finite().flat, c.null]) for c in curves.values())
    near = False
    for matrix, curve in curves.items():
        if len(curve.ceiling) and np.min(curve.ceiling) < 12 * top:
            colour = matrix_look(matrix)[1]
            ceiling = np.asarray(curve.ceiling)
            label = f"_rounding of {matrix}"
            axes.plot(curve.layers, ceiling, "--", label=label, lw=0.9, c=colour)
            near = True
    return near
