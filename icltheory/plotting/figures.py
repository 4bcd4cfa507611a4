"""General figures of a user's own data, on new or given axes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from icltheory.plotting._given import new_axes, numbers, require_mapping
from icltheory.plotting.curves import Curve, as_curve, draw_curve
from icltheory.plotting.labels import name_ends
from icltheory.plotting.style import (
    METHODS,
    method_colours,
    method_markers,
    plain_log_axis,
)

__all__ = ["error_curves", "heat_map", "spectrum"]


def error_curves(
    curves: Mapping[str, Any],
    *,
    ax: Any = None,
    xlabel: str = "in-context examples k",
    ylabel: str = "squared error",
    log: bool = True,
    log_x: bool = False,
    ylim: tuple[float, float] | None = None,
    colours: Mapping[str, Any] | None = None,
) -> Any:
    """Draws errors against the number of in-context examples, with their intervals.

    Each method has the same colour and marker in every figure
    (:func:`icltheory.plotting.method_colours`). Its name is written to the right of the
    end of its curve, in place of a legend. Over other places, such as the steps of a
    training run, give curves with ``x``.

    Args:
        curves: The curves by the names of their methods: :class:`Curve`, an estimate
            such as that of ``monte_carlo_risk``, which is drawn with its interval, or
            an array of means over k = 0, 1, ...
        ax: Axes of matplotlib; those of a new figure when left out.
        xlabel: Name of the x axis.
        ylabel: Name of the y axis.
        log: Whether the y axis is logarithmic. A curve leaves it at the lower edge
            where a value is not positive, and any axis at the upper one where a value
            is infinite.
        log_x: Whether the x axis is logarithmic.
        ylim: Limits of the y axis; those of the means when left out.
        colours: Colours of some curves, such as shades for the steps of a training
            run; the others have those of their methods.

    Returns:
        The axes.

    Source: Garg et al. (2022), Figure 2.
    """
    require_mapping("curves", curves, "curves")
    drawn = {
        name: as_curve(given, f"curves[{name!r}]") for name, given in curves.items()
    }
    means = np.concatenate([curve.mean for curve in drawn.values()])
    shown = means[np.isfinite(means) & ((means > 0) if log else True)]
    if not shown.size:
        kind = "positive" if log else "finite"
        raise ValueError(f"curves: expected a {kind} value, got none")
    low, high = ylim or _limits(shown, log)
    drawn = {name: _leaving((low, high), log, c) for name, c in drawn.items()}
    ax = new_axes(ax)
    colours = {**method_colours(curves), **(colours or {})}
    markers = method_markers(curves)
    for name, curve in drawn.items():
        style = {
            "marker": "" if curve.exact else markers[name],
            "markersize": 4,
            "markevery": max(1, len(curve.mean) // 10),
        }
        draw_curve(ax, curve, name, colours[name], **style)
    if log:
        plain_log_axis(ax.yaxis, high / low)
    if log_x:
        x = np.concatenate([curve.x for curve in drawn.values()])
        shown = x[x > 0]
        plain_log_axis(ax.xaxis, shown.max() / shown.min() if shown.size else 1.0)
    else:
        ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_ylim(low, high)
    ends = {name: curve.mean[np.isfinite(curve.mean)] for name, curve in drawn.items()}
    name_ends(ax, [(end[-1], n, colours[n]) for n, end in ends.items() if end.size])
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
    write: Any = "{:z.2f}".format,
    title: str = "",
) -> Any:
    """Draws a table of numbers as colours, such as layers by rates.

    Red is above 0 and blue below, so give differences or logarithms of ratios.

    Args:
        values: The numbers, ``(rows, columns)``. NaN is left white, and so is an
            infinity, with its sign.
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

    Source: Yao et al. (2024), Figure 1.
    """
    table = numbers("values", values, "rows", "columns")
    if limit is not None and not limit > 0:
        raise ValueError(f"limit: expected a positive number, got {limit}")
    named = {"rows": rows, "columns": columns}
    for (which, names), count in zip(named.items(), table.shape, strict=True):
        if names is not None and len(names) != count:
            raise ValueError(f"{which}: expected {count} names, got {len(names)}")
    ax = new_axes(ax)
    finite = np.abs(table[np.isfinite(table)])
    # A table of only zeros or NaN also needs a colour scale.
    limit = limit or float(finite.max(initial=0.0)) or 1.0
    scale = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit, "aspect": "auto"}
    image = ax.imshow(np.where(np.isfinite(table), table, np.nan), **scale)
    for (row, column), value in np.ndenumerate(table):
        if write is None or np.isnan(value):
            continue
        text = write(value) if np.isfinite(value) else f"{value}".replace("inf", "∞")
        dark = np.isfinite(value) and abs(value) > 0.65 * limit
        where = {"ha": "center", "va": "center", "fontsize": 8}
        ax.text(column, row, text, color="white" if dark else "black", **where)
    for axis, names, count in (
        (ax.yaxis, rows, table.shape[0]),
        (ax.xaxis, columns, table.shape[1]),
    ):
        names = range(count) if names is None else names
        axis.set_ticks(np.arange(count), labels=[str(name) for name in names])
    ax.grid(visible=False)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
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
    r"""Draws singular values as a histogram with a reference density.

    For a random matrix of the shape and mean square of ``W`` the density is
    ``lambda s: linalg.marchenko_pastur_density(s, W.shape, W.std())``.

    Args:
        values: The singular values, ``(values,)``.
        law: A density, evaluated between 0 and 1.2 times the largest value.
        ax: Axes of matplotlib; those of a new figure when left out.
        bins: Bars of the histogram.
        label: Name of the values.
        law_label: Name of the density.

    Returns:
        The axes.

    Source: Marchenko and Pastur (1967); Yao et al. (2024), section 3.4.
    """
    s = numbers("values", values, "singular values")
    if not np.isfinite(s).all():
        raise ValueError("values: expected finite singular values, got NaN or infinity")
    ax = new_axes(ax)
    ax.hist(s, bins=bins, density=True, color="0.75", label=label)
    if law is not None:
        x = np.linspace(0, 1.2 * s.max(), 601)
        density = np.asarray(law(x), float)
        ax.plot(x, density, "--", color=METHODS["exact"], label=law_label)
    ax.set_xlabel("singular value")
    ax.set_ylabel("density")
    ax.legend()
    return ax


def _leaving(limits: tuple[float, float], log: bool, curve: Curve) -> Curve:
    """Moves values that an axis cannot show far beyond its limits."""
    low, high = limits
    above = 1e6 * high if log else high + 1e3 * (high - low)
    mean = np.where(curve.mean == np.inf, above, curve.mean)
    found = {"mean": np.where(mean <= 0, 1e-6 * low, mean) if log else mean}
    if log and curve.low is not None:
        found["low"] = np.where(curve.low <= 0, 1e-6 * low, curve.low)
    return curve._replace(**found)


def _limits(shown: np.ndarray, log: bool) -> tuple[float, float]:
    """Returns axis limits a tenth wider than the values."""
    values = np.log(shown) if log else shown
    margin = 0.05 * (np.ptp(values) or 1.0)
    low, high = values.min() - margin, values.max() + margin
    return tuple(np.exp((low, high)).tolist()) if log else (float(low), float(high))
