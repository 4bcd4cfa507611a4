"""Shared by the experiments' figures: plain words, colours of matrices, axes."""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from icltheory.plotting import panel_grid
from icltheory.plotting.panels import name_ends
from icltheory.plotting.style import COLOURS

__all__ = [
    "MODULES",
    "demonstration_places",
    "demonstrations_axis",
    "key",
    "layer_colours",
    "layer_marker",
    "matrix_look",
    "name_ends",
    "page",
    "plain_words",
    "rates_axis",
]

# Figures have at most this width in inches, so that text is shown at its nominal size.
WIDTH = 8.4
MODULES = {"attn": "attention", "mlp": "MLP", "all": "attention and MLP"}
_MATRICES = {
    "W_Q": ("$W_Q$", COLOURS[0], "o"),
    "W_K": ("$W_K$", COLOURS[1], "s"),
    "W_V": ("$W_V$", COLOURS[2], "D"),
    "W_O": ("$W_O$", COLOURS[3], "^"),
    "W_in": (r"$W_\mathrm{in}$", COLOURS[4], "v"),
    "W_out": (r"$W_\mathrm{out}$", COLOURS[5], "P"),
    "W_gate": (r"$W_\mathrm{gate}$", COLOURS[6], "X"),
}
_TASKS = {
    "nonce": "sentiment, nonce labels",
    "nonce_topic": "topic, nonce labels",
    "sentiment": "sentiment, meaningful labels",
    "topic": "topic, meaningful labels",
}


def plain_words(name: str) -> str:
    """Returns the plain words for a task or a module in figures."""
    return {**_TASKS, **MODULES}.get(name, name.replace("_", " "))


def matrix_look(name: str) -> tuple[str, str, str]:
    """Returns label, colour and marker of a weight matrix, the same in every figure."""
    unit, _, own = name.rpartition(".")
    written, colour, marker = _MATRICES.get(own, (own, "grey", "o"))
    return (f"{plain_words(unit)} {written}" if unit else written, colour, marker)


def layer_colours(layers: Iterable[str]) -> dict[str, Any]:
    """Assigns a colour to each layer; many layers go from light to dark with depth."""
    names = list(layers)
    if len(names) < len(COLOURS):
        return dict(zip(names, COLOURS[1:], strict=False))
    import matplotlib.pyplot as plt

    return dict(
        zip(
            names,
            plt.get_cmap("viridis_r")(np.linspace(0.1, 1, len(names))),
            strict=True,
        )
    )


def layer_marker(place: int) -> str:
    """Returns the marker of a curve by its position in the figure."""
    return "osD^vPX"[place % 7]


@contextlib.contextmanager
def page(
    titles: Collection[str],
    columns: int,
    title: str,
    height: float,
    *,
    sharey: bool = False,
) -> Iterator[tuple[Sequence[Any], dict[str, Any]]]:
    """Opens a figure of the usual width with panels and one common legend.

    Args:
        titles: Titles of the panels.
        columns: Panels in a row, at most.
        title: Title of the figure.
        height: Height of a panel in inches.
        sharey: Whether all panels have one y axis, labelled at the left.

    Yields:
        The axes, whose figure is complete at the end, and further entries of the
        legend.

    Raises:
        ValueError: If there is no panel.
    """
    columns = max(1, min(columns, len(titles)))
    width = (WIDTH - 0.3) / columns if columns > 1 else 0.7 * WIDTH
    with panel_grid(titles, columns, title, (width, height)) as (_, shown, more):
        for place, axes in enumerate(shown if sharey else ()):
            if place:
                axes.sharey(shown[0])
            axes.tick_params(labelleft=place % columns == 0)
        yield list(shown), more


def key(**kwargs) -> Any:
    """Returns a legend entry for a kind of line or marker."""
    from matplotlib.lines import Line2D

    look: dict[str, Any] = {"color": "0.35", **kwargs}
    return Line2D([], [], **look)


def rates_axis(axes: Any) -> None:
    """Sets up an axis of clipping rates from 0 to 1."""
    axes.set_xlim(-0.02, 1.02)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", ".25", ".5", ".75", "1"])
    axes.set_xlabel("clipping rate")


def demonstration_places(shots: Sequence[int]) -> np.ndarray:
    """Returns positions on an axis that is linear up to 1 and logarithmic beyond."""
    k = np.asarray(shots, float)
    return np.where(k <= 1, k, 1 + np.log2(np.maximum(k, 1)))


def demonstrations_axis(axes: Any, shots: Sequence[int]) -> None:
    """Sets the ticks of an axis to the numbers of demonstrations."""
    axes.set_xticks(demonstration_places(shots), [str(k) for k in shots])
    axes.set_xlabel("demonstrations (log scale)")
