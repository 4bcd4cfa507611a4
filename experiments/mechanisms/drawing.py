"""Maps of induction scores by layer and head."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from icltheory.plotting import heat_map
from icltheory.plotting.grid import axes_in_rows
from icltheory.plotting.style import STYLE

__all__ = ["head_score_maps"]


def head_score_maps(panels: Mapping[str, Any], title: str):
    """Draws one map per panel, with each head's score as colour and number.

    Args:
        panels: Scores ``(layers, heads)`` by the panels' titles; from -1 to 1.
        title: What is shown.

    Returns:
        The matplotlib figure.

    References:
        Olsson et al. (2022), scores of all heads. Verified by
        ``tests/experiments/test_mechanisms.py``.
    """
    import matplotlib.pyplot as plt

    tall = max(np.shape(scores)[0] for scores in panels.values())
    style = {**STYLE, "font.size": 9, "axes.grid": False}
    with plt.rc_context(style):
        size = (2.6, 0.55 * tall + 1.5)
        figure, grid = axes_in_rows(len(panels), len(panels), size, (0.6, 0.0))
        image: Any = None
        for axes, (name, scores) in zip(grid[0], panels.items(), strict=True):
            labels = {"xlabel": "head", "ylabel": "", "title": name}
            image = heat_map(scores, ax=axes, limit=1.0, **labels)
        grid[0, 0].set_ylabel("layer")
        figure.colorbar(image, ax=grid, shrink=0.9)
        figure.suptitle(title)
    return figure
