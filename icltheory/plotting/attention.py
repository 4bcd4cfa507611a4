"""Figures of attention weights of heads."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from icltheory.plotting._given import axes_for, new_axes, numbers
from icltheory.plotting.grid import axes_in_rows
from icltheory.plotting.style import STYLE

__all__ = ["attention_map", "attention_maps"]


def attention_map(
    weights: Any,
    *,
    ax: Any = None,
    tokens: Sequence[str] | None = None,
    title: str = "",
    limit: float | int | None = None,
) -> Any:
    """Draws the attention of one head, with a row per query and a column per key.

    Softmax weights are drawn in blue from 0; where some are negative, as in linear
    attention, red is above 0 and blue below.

    Args:
        weights: Attention weights, ``(queries, keys)``; NaN is left white.
        ax: Axes of matplotlib; those of a new figure when left out.
        tokens: Names of the keys; those of the queries are the last ones of them.
        title: Title of the axes.
        limit: Absolute value of the darkest colour; the largest one when left out.

    Returns:
        The image, for a colour bar; its ``axes`` are those drawn on.

    Source: Olsson et al. (2022).
    """
    table = numbers("weights", weights, "queries", "keys")
    queries, keys = table.shape
    if queries > keys:
        raise ValueError(
            f"weights: expected (queries, keys) with as many keys or more, got shape "
            f"{table.shape}"
        )
    if tokens is not None and len(tokens) != keys:
        raise ValueError(f"tokens: expected {keys}, got {len(tokens)}")
    if limit is not None and not limit > 0:
        raise ValueError(f"limit: expected a positive number, got {limit}")
    ax = new_axes(ax)
    limit = limit or _largest(table)
    signed = bool((table < 0).any())
    scale = (
        {"cmap": "RdBu_r", "vmin": -limit} if signed else {"cmap": "Blues", "vmin": 0}
    )
    image = ax.imshow(table, vmax=limit, aspect="equal", **scale)
    if tokens is not None:
        ax.set_xticks(np.arange(keys), labels=list(tokens), rotation=90, fontsize=8)
        ax.set_yticks(np.arange(queries), labels=list(tokens)[-queries:], fontsize=8)
    ax.grid(visible=False)
    ax.set_xlabel("key")
    ax.set_ylabel("query")
    ax.set_title(title, fontsize=9)
    return image


def attention_maps(
    weights: Any,
    *,
    axes: Any = None,
    tokens: Sequence[str] | None = None,
    titles: Sequence[str] | None = None,
    columns: int = 4,
    limit: float | int | None = None,
) -> list[Any]:
    """Draws attention by layer, one panel per layer, with one colour scale.

    Args:
        weights: Attention weights of one head in each layer, or their means over
            heads, ``(layers, queries, keys)``.
        axes: Axes of matplotlib, one for each layer; those of a new figure, with a
            colour bar, when left out.
        tokens: Names of the keys; those of the queries are the last ones of them.
        titles: Titles of the panels; the numbers of the layers from 1 when left out.
        columns: Panels in a row of a new figure.
        limit: Absolute value of the darkest colour; the largest one when left out.

    Returns:
        The images, one for each layer.

    Source: Olsson et al. (2022).
    """
    stack = numbers("weights", weights, "layers", "queries", "keys")
    count = len(stack)
    if titles is None:
        titles = [f"layer {layer + 1}" for layer in range(count)]
    if len(titles) != count:
        raise ValueError(f"titles: expected {count}, got {len(titles)}")
    own = axes is None
    shown = _grid(count, columns) if axes is None else axes_for(axes, count)
    largest = _largest(stack)
    options = {"tokens": tokens, "limit": largest if limit is None else limit}
    images = [
        attention_map(layer, ax=ax, title=title, **options)
        for layer, ax, title in zip(stack, shown, titles, strict=True)
    ]
    if own:
        extend = "max" if limit is not None and limit < largest else "neither"
        bar = shown[0].figure.colorbar(images[0], ax=shown, shrink=0.8, extend=extend)
        bar.set_label("attention weight")
        for ax in shown:
            ax.label_outer()
    return images


def _largest(table: np.ndarray) -> float:
    # Weights that are all 0 or NaN also need a colour scale.
    return float(np.abs(table[np.isfinite(table)]).max(initial=0.0)) or 1.0


def _grid(count: int, columns: int) -> list[Any]:
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        grid = axes_in_rows(count, columns, (2.4, 2.5), (0.9, 0.0))[1]
    return list(grid.flat[:count])
