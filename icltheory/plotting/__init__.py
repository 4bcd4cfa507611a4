"""Style and general figures; matplotlib is imported when one is drawn, jax never.

A function takes numbers that are already computed and returns a matplotlib figure.
Figures of one experiment lie beside that experiment.
"""

from icltheory.plotting.curves import Curve, draw_curve
from icltheory.plotting.grid import panel_grid
from icltheory.plotting.panels import Line, LinePanel, line_panels
from icltheory.plotting.style import COLOURS, STYLE

__all__ = [
    "COLOURS",
    "STYLE",
    "Curve",
    "Line",
    "LinePanel",
    "draw_curve",
    "line_panels",
    "panel_grid",
]
