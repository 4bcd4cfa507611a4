"""Figures as files: small PNG, and SVG that is the same for the same figure."""

import io
from pathlib import Path
from typing import Any

__all__ = ["close", "write_png", "write_svg"]


def write_png(figure: Any, path: Path) -> None:
    """Writes a matplotlib figure with a palette of 256 colours, a third of the size."""
    from PIL import Image

    full = io.BytesIO()
    figure.savefig(full, format="png")
    image = Image.open(full).convert("RGB")
    # A dither would draw dots into plain areas.
    small = image.quantize(256, dither=Image.Dither.NONE)
    small.save(path, format="png", optimize=True)


def write_svg(figure: Any, path: Path) -> None:
    """Writes a matplotlib figure without its date and with reproducible names."""
    import matplotlib as mpl

    # Letters as paths look alike on machines that lack the font.
    fixed = {"svg.hashsalt": "icltheory", "svg.fonttype": "path"}
    with mpl.rc_context(fixed):
        figure.savefig(path, format="svg", metadata={"Date": None})


def close(figure: Any) -> None:
    """Lets a figure go; matplotlib keeps those it has opened."""
    import matplotlib.pyplot as plt

    plt.close(figure)
