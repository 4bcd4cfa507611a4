"""Figures of experiments: panels in the common style, and what is drawn alike."""

import contextlib
from collections.abc import Collection, Iterator
from typing import Any

from icltheory.plotting import STYLE, panel_grid
from icltheory.plotting.panels import SMALL

WIDTH = 8.4  # of a figure in inches at most: text is shown at its nominal size
_WORDS = {
    "attn": "attention",
    "mlp": "MLP",
    "all": "attention and MLP",
    "nonce": "sentiment, nonce labels",
    "nonce_topic": "topic, nonce labels",
    "sentiment": "sentiment, meaningful labels",
    "topic": "topic, meaningful labels",
}


def plain_words(name: str) -> str:
    """Returns the plain words for a task or a module in figures."""
    return _WORDS.get(name, name.replace("_", " "))


@contextlib.contextmanager
def panels(
    rows: int = 1, columns: int = 1, title: str = "", small: bool = False, **look: Any
) -> Iterator[tuple[Any, Any]]:
    """A figure in the common style and its axes, with a title once they are drawn.

    With ``small`` text and lines are those of figures of many panels; further options
    are those of ``matplotlib.pyplot.subplots``.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(SMALL if small else STYLE):
        figure, axes = plt.subplots(rows, columns, **look)
        yield figure, axes
        if title:
            figure.suptitle(title, fontsize=10)


@contextlib.contextmanager
def figure(
    titles: Collection[str], columns: int, title: str, height: float, sharey=False
) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """A figure of the usual width: its panels, and further entries of the one legend.

    ``columns`` panels stand in a row at most, each ``height`` inches high. With
    ``sharey`` all have one y axis, labelled at the left.
    """
    columns = max(1, min(columns, len(titles)))
    width = (WIDTH - 0.3) / columns if columns > 1 else 0.7 * WIDTH
    with panel_grid(titles, columns, title, (width, height)) as (_, shown, more):
        for place, axes in enumerate(shown if sharey else ()):
            if place:
                axes.sharey(shown[0])
            axes.tick_params(labelleft=place % columns == 0)
        yield list(shown), more


def key(color: Any = "0.35", **look: Any) -> Any:
    """A legend entry for a kind of line or marker."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=color, **look)


def layer_marker(place: int) -> str:
    """The marker of a curve by its position in the figure."""
    return "osD^vPX"[place % 7]
