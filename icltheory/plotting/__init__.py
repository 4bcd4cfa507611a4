"""Style and general figures; matplotlib is imported when one is drawn.

A function takes numbers that are already computed, and draws on given axes (``ax=``, or
``axes=`` for several panels) or on new ones. A method has the same colour and marker in
every figure, and its name stands at the end of its curve. Figures of one experiment
lie beside that experiment.

Stability: provisional.
"""

from icltheory.plotting.figures import (
    Curve,
    attention_maps,
    draw_curve,
    error_curves,
    heat_map,
    spectrum,
)
from icltheory.plotting.panels import (
    Line,
    LinePanel,
    line_panels,
    name_ends,
    panel_grid,
)
from icltheory.plotting.style import (
    COLOURS,
    METHODS,
    STYLE,
    method_colours,
    method_markers,
)

__all__ = [
    "COLOURS",
    "METHODS",
    "STYLE",
    "Curve",
    "Line",
    "LinePanel",
    "attention_maps",
    "draw_curve",
    "error_curves",
    "heat_map",
    "line_panels",
    "method_colours",
    "method_markers",
    "name_ends",
    "panel_grid",
    "spectrum",
]
