"""One look for all figures."""

import itertools
from collections.abc import Iterator

__all__ = ["COLOURS", "STYLE"]

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.dpi": 150,
    "font.size": 10,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


def colours(first: int = 0) -> Iterator[str]:
    """The colours from one on, over and over: a line too many is not left out."""
    return itertools.cycle(COLOURS[first:])


def plain_log_axis(axis, span: float) -> None:
    """Makes an axis logarithmic; over few decades it says 0.3, not 3 x 10^-1.

    Args:
        axis: A matplotlib axis.
        span: Largest over smallest value on it.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.axes.set_yscale("log")
    axis.set_minor_formatter(NullFormatter())
    if span <= 1e3:
        subs = (1.0, 2.0, 5.0) if span < 30 else (1.0, 3.0)
        axis.set_major_locator(LogLocator(subs=subs, numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
