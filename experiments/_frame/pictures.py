"""Writes figures: small PNG files, and SVG files that are reproducible."""

import io
from pathlib import Path
from typing import Any

__all__ = ["close", "write_png", "write_svg"]


def write_png(figure: Any, path: Path) -> None:
    """Writes a matplotlib figure as PNG with 256 colours, a third of the usual size."""
    from PIL import Image

    full = io.BytesIO()
    figure.savefig(full, format="png")
    image = Image.open(full).convert("RGB")
    # Dithering would draw dots in plain areas.
    small = image.quantize(256, dither=Image.Dither.NONE)
    small.save(path, format="png", optimize=True)


def write_svg(figure: Any, path: Path) -> None:
    """Writes a matplotlib figure as SVG, without date and with reproducible names."""
    import matplotlib as mpl

    # Text as paths looks the same on machines without the font.
    fixed = {"svg.hashsalt": "icltheory", "svg.fonttype": "path"}
    with mpl.rc_context(fixed):
        figure.savefig(path, format="svg", metadata={"Date": None})


def close(figure: Any) -> None:
    """Closes a figure, which matplotlib would otherwise keep in memory."""
    import matplotlib.pyplot as plt

    plt.close(figure)
