"""Maps of induction scores, layers against heads."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from icltheory.plotting.style import STYLE

__all__ = ["head_score_maps"]


def head_score_maps(panels: Mapping[str, Any], title: str):
    """Draws one map a panel with the score of every head as colour and number.

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
        figure, grid = plt.subplots(
            1,
            len(panels),
            figsize=(2.6 * len(panels) + 0.6, 0.55 * tall + 1.5),
            squeeze=False,
        )
        image: Any = None
        for axes, (name, scores) in zip(grid[0], panels.items(), strict=True):
            scores = np.asarray(scores, float)
            image = axes.imshow(scores, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
            for (layer, head), value in np.ndenumerate(scores):
                colour = "white" if abs(value) > 0.65 else "black"
                axes.text(
                    head,
                    layer,
                    f"{value:.2f}",
                    **{"ha": "center", "va": "center", "fontsize": 7, "color": colour},
                )
            axes.set_xticks(np.arange(scores.shape[1]))
            axes.set_yticks(np.arange(scores.shape[0]))
            axes.set_xlabel("head")
            axes.set_title(name, fontsize=9)
        grid[0, 0].set_ylabel("layer")
        figure.colorbar(image, ax=grid, shrink=0.9)
        figure.suptitle(title)
    return figure
