"""Style and general figures; matplotlib is imported when one is drawn.

A function takes numbers that are already computed. Those of :mod:`.figures` draw on
given axes (``ax=``) or on new ones. A method has the same colour in every figure.
Figures of one experiment lie beside that experiment.

Stability: provisional.
"""

from icltheory.plotting.curves import Curve, draw_curve
from icltheory.plotting.figures import (
    attention_map,
    error_curves,
    heat_map,
    spectrum,
)
from icltheory.plotting.grid import panel_grid
from icltheory.plotting.panels import Line, LinePanel, line_panels
from icltheory.plotting.style import COLOURS, METHODS, STYLE, method_colours

__all__ = [
    "COLOURS",
    "METHODS",
    "STYLE",
    "Curve",
    "Line",
    "LinePanel",
    "attention_map",
    "draw_curve",
    "error_curves",
    "heat_map",
    "line_panels",
    "method_colours",
    "panel_grid",
    "spectrum",
]


def __dir__() -> list[str]:
    return sorted(__all__)
