"""Figures of errors and gains of pruned models."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments._frame.looks import key, layer_colours, layer_marker, page, rates_axis
from icltheory.plotting.style import COLOURS, plain_log_axis

__all__ = ["ErrorCurve", "Gain", "RatePanel", "errors_against_rate", "gains_of_choices"]


class ErrorCurve(NamedTuple):
    """Error of one pruned layer divided by the unpruned error, over rates or shares.

    Attributes:
        mean: The ratio at each place.
        low: Lower end of its interval, or ``None``.
        high: Upper end, or ``None``.
        sure: Where the change survives the correction for multiple tests; ``None``
            where nothing was tested.
    """

    mean: Any
    low: Any = None
    high: Any = None
    sure: Any = None


class RatePanel(NamedTuple):
    """One panel of errors against rates or kept shares.

    Attributes:
        places: Clipping rates, or shares of the parameters.
        curves: One curve a layer, over the places.
        dashed: A second way to prune, in the same colours.
        shares: Whether the places are shares, on a logarithmic axis.
    """

    places: Sequence[float]
    curves: Mapping[str, ErrorCurve]
    dashed: Mapping[str, ErrorCurve] = {}
    shares: bool = False


def errors_against_rate(
    panels: Mapping[str, RatePanel],
    title: str,
    columns: int = 3,
    *,
    sharey: bool = False,
    ways: tuple[str, str] | None = None,
):
    """Draws the ratio to the unpruned error, one line per layer, on a log axis.

    A mark is filled where the change survives the correction for multiple tests.

    Args:
        panels: What each panel shows, by its title.
        title: What was measured.
        columns: Panels in a row.
        sharey: Whether all panels have one y axis.
        ways: What solid and dashed lines are, where there are both.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: If there is no panel.

    References:
        Yao et al. 2024, Figures 1 and 2. Verified by
        ``tests/experiments/test_prune_icl.py``.
    """
    with page(panels, columns, title, 2.2, sharey=sharey) as (shown, entries):
        for axes, panel in zip(shown, panels.values(), strict=True):
            _rate_panel(axes, panel, entries)
        curves = [c for p in panels.values() for c in p.curves.values()]
        if any(curve.sure is not None for curve in curves):
            for label, face in (
                ("beyond chance after Holm", "0.35"),
                ("not beyond chance", "white"),
            ):
                entries[label] = key(linestyle="", marker="o", markerfacecolor=face)
        for label, style in zip(ways or (), ("-", "--"), strict=False):
            entries[label] = key(linestyle=style)
        for axes in shown[::columns]:
            axes.set_ylabel("error over\nunpruned error")
    return shown[0].figure


def _rate_panel(axes, panel: RatePanel, entries: dict[str, Any]) -> None:
    axes.axhline(1.0, color="0.35", linestyle=":", linewidth=1.0)
    looks = layer_colours(panel.curves)
    for order, (label, curve) in enumerate(panel.curves.items()):
        look = {"color": looks[label], "marker": layer_marker(order)}
        _curve(axes, panel.places, curve, look, "-")
        if label in panel.dashed:
            _curve(axes, panel.places, panel.dashed[label], look, "--")
        entries[label] = key(**look, markersize=5)
    means = [c.mean for c in (*panel.curves.values(), *panel.dashed.values())]
    plain_log_axis(axes.yaxis, max(float(np.max(means) / np.min(means)), 10.0))
    if not panel.shares:
        rates_axis(axes)
        return
    shares = [1, 0.3, 0.1, 0.03]
    axes.set_xscale("log")
    axes.set_xticks(shares, [f"{100 * share:g} %" for share in shares])
    axes.minorticks_off()
    axes.set(xlim=(1.15, 0.85 * min(panel.places)))
    axes.set_xlabel("parameters stored (log scale)")


def _curve(axes, places, curve: ErrorCurve, look: dict[str, Any], style: str) -> None:
    x, mean = np.asarray(places, float), np.asarray(curve.mean, float)
    axes.plot(x, mean, style, color=look["color"], linewidth=1.2)
    if curve.low is not None:
        low = np.maximum(np.asarray(curve.low, float), mean / 1e3)
        band = {"color": look["color"], "alpha": 0.2, "lw": 0}
        axes.fill_between(x, low, curve.high, **band)
    sure = np.ones(len(x)) if curve.sure is None else curve.sure
    sure = np.asarray(sure, bool)
    for which, face in ((sure, look["color"]), (~sure, "white")):
        mark = {**look, "linestyle": "", "markersize": 4, "markerfacecolor": face}
        axes.plot(x[which], mean[which], **mark)


class Gain(NamedTuple):
    """Relative change of the error by a choice; negative if pruning helps.

    Attributes:
        validation: Change on the prompts on which the choice was made.
        test: Change on other prompts.
        low: Lower end of the interval of ``test``.
        high: Upper end of the interval of ``test``.
        sure: Whether the gain on test survives the correction for multiple tests.
    """

    validation: float
    test: float
    low: float
    high: float
    sure: bool


def gains_of_choices(panels: Mapping[str, Mapping[str, Sequence[Gain]]], title: str):
    """Draws the gain of each choice on validation and on test.

    Args:
        panels: For each condition, by the names of the rows, the gains of each seed.
        title: What was measured.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: If there is no panel.

    References:
        Yao et al. 2024, Figure 4. Verified by ``tests/experiments/test_prune_icl.py``.
    """
    rows = max((len(gains) for gains in panels.values()), default=0)
    with page(panels, 3, title, 1.0 + 0.42 * rows) as (shown, entries):
        for number, (axes, gains) in enumerate(
            zip(shown, panels.values(), strict=True)
        ):
            for place, seeds in enumerate(gains.values()):
                for order, gain in enumerate(seeds):
                    shift = 0.22 * (order - (len(seeds) - 1) / 2)
                    _gain(axes, -place - shift, gain)
            axes.axvline(0.0, color="0.35", linestyle=":", linewidth=1.2)
            names = list(gains) if number % 3 == 0 else [""] * len(gains)
            axes.set_yticks(-np.arange(len(gains)), names)
            axes.set(ylim=(-len(gains) + 0.4, 0.6), xlabel="change of the error, %")
        look = {"linestyle": "", "marker": "o", "color": COLOURS[1]}
        entries["test, gain beyond chance after Holm"] = key(**look)
        entries["test, no such gain"] = key(**look, markerfacecolor="white")
        entries["validation"] = key(linestyle="", marker="|", color=COLOURS[2])
    return shown[0].figure


def _gain(axes, place: float, gain: Gain) -> None:
    face = COLOURS[1] if gain.sure else "white"
    bars = 100 * np.array([[gain.test - gain.low], [gain.high - gain.test]])
    mark = {"fmt": "o", "color": COLOURS[1], "markersize": 3.5, "linewidth": 1}
    bars = np.clip(bars, 0, None)
    axes.errorbar(100 * gain.test, place, None, bars, markerfacecolor=face, **mark)
    at = {"marker": "|", "color": COLOURS[2], "markersize": 7, "linestyle": ""}
    axes.plot(100 * gain.validation, place, **at)
