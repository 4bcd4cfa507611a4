"""Figure of condition numbers by layer, compared with random matrices."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments._frame.looks import matrix_look, name_ends, page

__all__ = ["ConditionCurve", "condition_numbers_along_depth"]


class ConditionCurve(NamedTuple):
    """Condition numbers of one matrix by layer, with those of a random matrix.

    Attributes:
        layers: Numbers of the layers.
        values: Condition numbers of several models ``(models, layers)``, whose
            geometric mean is drawn; infinite ones are left out.
        null: Median condition number of random matrices of the shape.
        null_label: The shape.
    """

    layers: Sequence[int]
    values: Any
    null: float
    null_label: str

    def finite(self) -> np.ndarray:
        """The values, with NaN in place of infinity."""
        values = np.asarray(self.values, float)
        return np.where(np.isfinite(values), values, np.nan)

    def middle(self) -> np.ndarray:
        """The geometric mean of each layer."""
        return np.exp(np.log(self.finite()).mean(axis=0))


def condition_numbers_along_depth(
    panels: Mapping[str, Mapping[str, ConditionCurve]], title: str
):
    """Draws one curve per matrix over the layers, and the ratio to a random matrix.

    A matrix has the same colour and marker in every figure. Grey dotted lines are the
    medians of random matrices, one for each shape.

    Args:
        panels: For each model, a row of panels, the curve of each matrix.
        title: What is shown.

    Returns:
        The matplotlib figure.

    References:
        Yao et al. 2024, Figure 3. Verified by ``tests/experiments/test_prune_icl.py``.
    """
    titles = [name for name in panels for _ in range(2)]
    with page(titles, 2, title, 3.2) as (axes, _):
        for left, right, curves in zip(
            axes[::2], axes[1::2], panels.values(), strict=True
        ):
            for matrix, curve in curves.items():
                _curve(left, matrix, curve, 1.0)
                _curve(right, matrix, curve, curve.null)
            _names(left, curves)
            right.axhline(1.0, color="grey", linestyle=":", linewidth=1.2)
            left.set_ylabel("condition number")
            right.set_ylabel("ratio to the median of\nrandom matrices of the shape")
            for ax in (left, right):
                ax.set(yscale="log", xlabel="layer")
                ax.xaxis.get_major_locator().set_params(integer=True)
    return axes[0].figure


def _curve(axes, matrix: str, curve: ConditionCurve, scale: float) -> None:
    _, colour, marker = matrix_look(matrix)
    layers, mark = np.asarray(curve.layers), {"marker": marker, "markersize": 4}
    mean = curve.middle() / scale
    axes.plot(layers, mean, "-", label=f"_{matrix}", color=colour)
    for row in curve.finite() / scale:
        axes.plot(layers, row, linestyle="", alpha=0.6, color=colour, **mark)


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
