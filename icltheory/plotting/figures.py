"""General figures of a user's own numbers, each on axes of its own or on given ones."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from icltheory.plotting.curves import Curve, draw_curve
from icltheory.plotting.style import METHODS, STYLE, method_colours, plain_log_axis

__all__ = ["attention_map", "error_curves", "heat_map", "spectrum"]


def error_curves(
    curves: Mapping[str, Any],
    *,
    ax: Any = None,
    xlabel: str = "in-context examples k",
    ylabel: str = "squared error",
    log: bool = True,
) -> Any:
    """Draws errors against the number of in-context examples, with their intervals.

    Each method has the same colour in every figure
    (:func:`icltheory.plotting.method_colours`). Its name is written to the right of the
    end of its curve, in place of a legend.

    Args:
        curves: The curves by the names of their methods: :class:`Curve`, an estimate
            such as that of ``monte_carlo_risk``, which is drawn with its interval, or
            an array of means over k = 0, 1, ...
        ax: Axes of matplotlib; those of a new figure when left out.
        xlabel: Name of the x axis.
        ylabel: Name of the y axis.
        log: Whether the y axis is logarithmic; values that are not positive are then
            left out.

    Returns:
        The axes.

    Raises:
        ValueError: If there is no curve.

    References:
        Garg et al. (2022), Figure 2. Verified by ``tests/plotting/test_figures.py``.
    """
    if not curves:
        raise ValueError("curves: expected at least one, got none")
    ax, ends, values = _axes(ax), [], []
    colours = method_colours(curves)
    for name, given in curves.items():
        curve = Curve.of(given, exact=False)
        mean = np.asarray(curve.mean, float)
        mean = np.where(mean > 0, mean, np.nan) if log else mean
        draw_curve(ax, curve._replace(mean=mean), name, colours[name])
        if np.isfinite(mean).any():
            ends.append((float(mean[np.isfinite(mean)][-1]), name))
            values += [float(np.nanmin(mean)), float(np.nanmax(mean))]
    if log:
        plain_log_axis(ax.yaxis, max(values, default=1.0) / min(values, default=1.0))
    ax.xaxis.get_major_locator().set_params(integer=True)
    _name_ends(ax, ends, colours, log)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    return ax


def heat_map(
    values: Any,
    *,
    ax: Any = None,
    rows: Sequence[Any] | None = None,
    columns: Sequence[Any] | None = None,
    xlabel: str = "clipping rate",
    ylabel: str = "layer",
    limit: float | int | None = None,
    write: Any = "{:.2f}".format,
    title: str = "",
) -> Any:
    """Draws a table of numbers as colours: layers by rates, heads by layers, and so on.

    Red is above 0 and blue below, so give differences or logarithms of ratios.

    Args:
        values: The numbers, ``(rows, columns)``; NaN is left white.
        ax: Axes of matplotlib; those of a new figure when left out.
        rows: Names of the rows; their numbers from 0 when left out.
        columns: Names of the columns, likewise.
        xlabel: What the columns are.
        ylabel: What the rows are.
        limit: Absolute value of the darkest colours; the largest one when left out.
        write: Makes the text of a cell from its number, or ``None`` for no text.
        title: Title of the axes.

    Returns:
        The image, for a colour bar; its ``axes`` are those drawn on.

    Raises:
        ValueError: If ``values`` is no table or the names are of another length.

    References:
        Yao et al. (2024), Figure 1. Verified by ``tests/plotting/test_figures.py``.
    """
    table = np.asarray(values, float)
    if table.ndim != 2:
        raise ValueError(f"values: expected (rows, columns), got shape {table.shape}")
    ax = _axes(ax)
    limit = float(np.nanmax(np.abs(table))) if limit is None else limit
    scale = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit, "aspect": "auto"}
    image = ax.imshow(table, **scale)
    for (row, column), value in np.ndenumerate(table):
        if write is not None and np.isfinite(value):
            colour = "white" if abs(value) > 0.65 * limit else "black"
            where = {"ha": "center", "va": "center", "fontsize": 7}
            ax.text(column, row, write(value), color=colour, **where)
    for axis, names, count in (
        (ax.yaxis, rows, table.shape[0]),
        (ax.xaxis, columns, table.shape[1]),
    ):
        names = range(count) if names is None else names
        if len(names) != count:
            raise ValueError(f"names: expected {count}, got {len(names)}")
        axis.set_ticks(np.arange(count), labels=[str(name) for name in names])
    ax.grid(visible=False)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.set_title(title, fontsize=9)
    return image


def attention_map(
    weights: Any,
    *,
    ax: Any = None,
    tokens: Sequence[str] | None = None,
    title: str = "",
) -> Any:
    """Draws the attention of one head: a row for each query, a column for each key.

    Args:
        weights: Attention weights, ``(queries, keys)``, as the softmax gives them.
        ax: Axes of matplotlib; those of a new figure when left out.
        tokens: Names of the keys; those of the queries are the last ones of them.
        title: Title of the axes.

    Returns:
        The image, for a colour bar; its ``axes`` are those drawn on.

    Raises:
        ValueError: If ``weights`` is no table or has fewer keys than queries, or the
            tokens are of another length.

    References:
        Olsson et al. (2022). Verified by ``tests/plotting/test_figures.py``.
    """
    table = np.asarray(weights, float)
    if table.ndim != 2 or table.shape[0] > table.shape[1]:
        raise ValueError(
            f"weights: expected (queries, keys) with as many keys or more, got shape "
            f"{table.shape}"
        )
    queries, keys = table.shape
    if tokens is not None and len(tokens) != keys:
        raise ValueError(f"tokens: expected {keys}, got {len(tokens)}")
    ax = _axes(ax)
    image = ax.imshow(table, cmap="Blues", vmin=0.0, aspect="equal")
    if tokens is not None:
        turned = {"rotation": 90, "fontsize": 7}
        ax.set_xticks(np.arange(keys), labels=list(tokens), **turned)
        ax.set_yticks(np.arange(queries), labels=list(tokens)[-queries:], fontsize=7)
    ax.grid(visible=False)
    ax.set_xlabel("key")
    ax.set_ylabel("query")
    ax.set_title(title, fontsize=9)
    return image


def spectrum(
    values: Any,
    law: Callable[[np.ndarray], Any] | None = None,
    *,
    ax: Any = None,
    bins: int = 40,
    label: str = "singular values",
    law_label: str = "random matrix",
) -> Any:
    r"""Draws singular values as a histogram, beside a density such as that of chance.

    For a random matrix of the shape and mean square of ``W`` the density is
    ``lambda s: linalg.marchenko_pastur_density(s, W.shape, W.std())``.

    Args:
        values: The singular values.
        law: A density, evaluated between 0 and 1.2 times the largest value.
        ax: Axes of matplotlib; those of a new figure when left out.
        bins: Bars of the histogram.
        label: Name of the values.
        law_label: Name of the density.

    Returns:
        The axes.

    Raises:
        ValueError: If there is no value.

    References:
        Marchenko and Pastur (1967); Yao et al. (2024), section 3.4. Verified by
        ``tests/plotting/test_figures.py``.
    """
    s = np.ravel(np.asarray(values, float))
    if not s.size:
        raise ValueError("values: expected singular values, got none")
    ax = _axes(ax)
    ax.hist(s, bins=bins, density=True, color="0.75", label=label)
    if law is not None:
        x = np.linspace(0, 1.2 * s.max(), 601)
        density = np.asarray(law(x), float)
        ax.plot(x, density, "--", color=METHODS["exact"], label=law_label)
    ax.set_xlabel("singular value")
    ax.set_ylabel("density")
    ax.legend()
    return ax


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        return plt.subplots(figsize=(5.5, 3.8))[1]


def _name_ends(ax, ends, colours: Mapping[str, str], log: bool) -> None:
    """Writes the names right of the axes, at the height of the ends of their curves."""
    low, high = ax.get_ylim()

    def height(value: float) -> float:
        if log:
            return float(np.log(value / low) / np.log(high / low))
        return (value - low) / (high - low)

    free = -np.inf
    for value, name in sorted(ends):
        free = max(height(value), free + 0.06)
        style = {"color": colours[name], "fontsize": 8, "va": "center"}
        ax.text(1.02, free, name, transform=ax.transAxes, **style)
