"""Figures of a user's own data, on new or given axes: curves, tables, attention."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory.plotting.panels import axes_for, axes_in_rows, name_ends, new_axes
from icltheory.plotting.style import (
    METHODS,
    STYLE,
    method_colours,
    method_markers,
    plain_log_axis,
)


class Curve(NamedTuple):
    """A curve over the number of examples or another quantity."""

    mean: Any
    low: Any = None  # lower end of the interval
    high: Any = None
    exact: bool = False  # whether it is a formula, drawn dashed, and no measurement
    x: Any = None  # the places; 0, 1, 2, ... unless given

    @classmethod
    def of(
        cls, values: Any, level: float | int = 0.95, *, exact: bool = True
    ) -> "Curve":
        """Converts an estimate with its interval, or numbers without one, to a curve.

        An estimate, such as :class:`icltheory.statistics.Estimate`, is a measurement;
        an array over k = 0, 1, ... is a formula unless ``exact`` is false. A curve is
        returned as it is.

        Example:
            >>> Curve.of([1.0, 0.5]).exact
            True
        """
        if isinstance(values, Curve):
            return values
        if not hasattr(values, "interval"):
            return cls(np.asarray(values), exact=exact)
        low, high = values.interval(level)
        return cls(values.mean, low, high)


def _as_curve(given: Any, places: Any = None) -> Curve:
    """Converts a curve, or an array of values, to a curve of NumPy arrays."""
    mean, low, high, exact, x = Curve.of(given, exact=False)
    if np.ndim(mean) != 1:
        got = f"got shape {np.shape(mean)}: ask for several numbers of examples"
        raise ValueError(f"curves: expected a value for each place, {got}")
    x = places if x is None else x
    x = range(len(mean)) if x is None else x
    if len(x) != len(mean):
        raise ValueError(f"x: expected {len(mean)} places, got {len(x)}")
    mean, low, high = (
        v if v is None else np.asarray(v, float) for v in (mean, low, high)
    )
    for end in (low, high):
        if end is not None and end.shape != np.shape(x):
            got = f"{len(x)} values, got ends of shape {end.shape}"
            raise ValueError(f"curves: expected an interval for each of {got}")
    return Curve(mean, low, high, exact, np.asarray(x, float))


def draw_curve(axes, curve: Any, label: str, colour, **kwargs) -> None:
    """Draws a :class:`Curve`, or an array of values, with its interval as a band.

    It is dashed if it is exact; ``kwargs`` are further options of ``axes.plot``.
    """
    curve = _as_curve(curve)
    style = {"linestyle": "--" if curve.exact else "-", **kwargs}
    axes.plot(curve.x, curve.mean, color=colour, label=label, **style)
    if curve.low is not None:
        band = {"color": colour, "alpha": 0.2, "linewidth": 0}
        axes.fill_between(curve.x, curve.low, curve.high, **band)


def error_curves(
    curves: Mapping[str, Any],
    *,
    x: Any = None,
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
    end of its curve, in place of a legend. Returns the axes.

    Args:
        curves: The curves by the names of their methods: :class:`Curve`, an estimate
            such as that of ``estimate_risk``, which is drawn with its interval, or
            an array of means.
        x: Places of all curves that have none of their own; 0, 1, ... unless given.
        log: Whether the y axis is logarithmic. A curve leaves it at the lower edge
            where a value is not positive, and any axis at the upper one where a value
            is infinite.
        ylim: Limits of the y axis; those of the means unless given.
        colours: Colours of some curves, in place of those of their methods.

    Source: Garg et al. (2022), Figure 2.
    """
    if not isinstance(curves, Mapping) or not curves:
        got = "none" if isinstance(curves, Mapping) else type(curves).__name__
        raise ValueError(f"curves: expected curves by name, at least one, got {got}")
    drawn = {name: _as_curve(given, x) for name, given in curves.items()}
    means = np.concatenate([curve.mean for curve in drawn.values()])
    shown = means[np.isfinite(means) & ((means > 0) if log else True)]
    if not shown.size:
        kind = "positive" if log else "finite"
        raise ValueError(f"curves: expected a {kind} value, got none")
    low, high = ylim or _limits(shown, log)
    if log and min(low, high) <= 0:
        expected = "limits above 0, as the y axis is logarithmic"
        raise ValueError(f"ylim: expected {expected}, got {ylim}")
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
        at = np.concatenate([curve.x for curve in drawn.values()])
        shown = at[at > 0]
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

    Red is above 0 and blue below, so give differences or logarithms of ratios. Returns
    the image, for a colour bar.

    Args:
        values: The numbers, ``(rows, columns)``. NaN and infinities are white.
        rows: Names of the rows; their numbers from 0 unless given. So are ``columns``.
        limit: Absolute value of the darkest colours; the largest one unless given.
        write: Makes the text of a cell from its number, or ``None`` for no text.

    Source: Yao et al. (2024), Figure 1.
    """
    table = np.asarray(values, float)
    if table.ndim != 2:
        raise ValueError(f"values: expected rows and columns, got shape {table.shape}")
    for name, given, count in (
        ("rows", rows, len(table)),
        ("columns", columns, table.shape[1]),
    ):
        if given is not None and len(given) != count:
            raise ValueError(f"{name}: expected {count} names, got {len(given)}")
    ax = new_axes(ax)
    limit = limit or _largest(table)
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
    ``lambda s: linalg.marchenko_pastur_density(s, W.shape, W.std())``; it is drawn
    between 0 and 1.2 times the largest value. Returns the axes: those given (``ax``) or
    those of a new figure.

    Source: Marchenko and Pastur (1967); Yao et al. (2024), section 3.4.
    """
    s, ax = np.asarray(values, float), new_axes(ax)
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


def attention_maps(
    weights: Any,
    *,
    axes: Any = None,
    tokens: Sequence[str] | None = None,
    titles: Sequence[str] | None = None,
    columns: int = 4,
    limit: float | int | None = None,
) -> list[Any]:
    """Draws attention ``(layers, queries, keys)`` by layer, with one colour scale.

    Softmax weights are drawn in blue from 0; where some are negative, as in linear
    attention, red is above 0 and blue below. NaN is white. Returns the images.

    Args:
        weights: Attention weights of one head in each layer, or their means over heads.
        axes: Axes of matplotlib, one for each layer; those of a new figure, with a
            colour bar, unless given.
        tokens: Names of the keys; those of the queries are the last ones of them.
        titles: Titles of the panels; the numbers of the layers unless given.
        columns: Panels in a row of a new figure.
        limit: Absolute value of the darkest colour; the largest one unless given.

    Source: Olsson et al. (2022).
    """
    stack = np.asarray(weights, float)
    count, own = len(stack), axes is None
    if titles is None:
        titles = [f"layer {layer}" for layer in range(count)]
    if own:
        import matplotlib.pyplot as plt

        with plt.rc_context(STYLE):
            axes = axes_in_rows(count, columns, (2.4, 2.5), (0.9, 0.0))[1].flat[:count]
    shown, largest = axes_for(axes, count), _largest(stack)
    vmax = largest if limit is None else limit
    scale = {"cmap": "Blues", "vmin": 0, "vmax": vmax, "aspect": "equal"}
    if (stack < 0).any():
        scale |= {"cmap": "RdBu_r", "vmin": -vmax}
    images = []
    for table, ax, title in zip(stack, shown, titles, strict=True):
        images.append(ax.imshow(table, **scale))
        if tokens is not None:
            queries, keys = table.shape
            names = list(tokens)
            ax.set_xticks(np.arange(keys), labels=names, rotation=90, fontsize=8)
            ax.set_yticks(np.arange(queries), labels=names[-queries:], fontsize=8)
        ax.grid(visible=False)
        ax.set(xlabel="key", ylabel="query")
        ax.set_title(title, fontsize=9)
    if own:
        extend = "max" if vmax < largest else "neither"
        bar = shown[0].figure.colorbar(images[0], ax=shown, shrink=0.8, extend=extend)
        bar.set_label("attention weight")
        for ax in shown:
            ax.label_outer()
    return images


def _largest(table: np.ndarray) -> float:
    # A table of only zeros or NaN also needs a colour scale.
    return float(np.abs(table[np.isfinite(table)]).max(initial=0.0)) or 1.0
