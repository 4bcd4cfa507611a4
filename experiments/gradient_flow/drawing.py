"""Figures of gradient flows: paths, bounds, descents, and random starts."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory.plotting import COLOURS, STYLE, Curve, error_curves, heat_map, name_ends
from icltheory.plotting.grid import axes_in_rows
from icltheory.plotting.style import colours

__all__ = [
    "FlowPanel",
    "FlowStarts",
    "descents_beside_flow",
    "fates_of_starts",
    "flow_paths",
    "flow_rates",
]


class FlowPanel(NamedTuple):
    """The data of one flow for a panel.

    Attributes:
        times: Times, the first of them 0.
        beta: Starts, (T, d).
        Gamma: Preconditioners, (T, d, d).
        limit_beta: Limit of beta.
        limit_Gamma: Limit of Gamma.
        curves: For each quantity its values and its bounds by name.
    """

    times: Any
    beta: Any
    Gamma: Any
    limit_beta: Any
    limit_Gamma: Any
    curves: Mapping[str, tuple[Any, Mapping[str, Any]]]


class FlowStarts(NamedTuple):
    """The data of random starts of one setting for a panel.

    Attributes:
        label: What is trained, and its d and M.
        times: Times, the first of them 0.
        excess: Excess risks, (starts, T).
        level: Excess of the spurious minimum.
        is_minimum: Whether it is known to be a local minimum.
        fates: Whether each start met each fate, (starts,), by name.
        interval: Ends of the interval of the first share.
    """

    label: str
    times: Any
    excess: Any
    level: float
    is_minimum: bool
    fates: Mapping[str, Any]
    interval: tuple[float, float]


def flow_paths(panels: Mapping[str, FlowPanel], title: str):
    """Draws the entries of beta over time, and Gamma at some times as images.

    Args:
        panels: Flows by name, one a row.
        title: What flows.

    Returns:
        The matplotlib figure.

    References:
        Zhang, Wu and Bartlett 2024, Theorem 6.3. Verified by
        ``tests/experiments/test_gradient_flow.py``.
    """
    import matplotlib.pyplot as plt

    limit = max(
        float(np.max(np.abs(value)))
        for panel in panels.values()
        for value in (panel.Gamma, panel.limit_Gamma)
    )
    with plt.rc_context({**STYLE, "font.size": 9, "lines.linewidth": 1.5}):
        figure, grid = plt.subplots(
            len(panels),
            6,
            figsize=(9.2, 2.3 * len(panels) + 0.4),
            width_ratios=[2.2, 1, 1, 1, 1, 1],
            squeeze=False,
        )
        for row, (name, panel) in zip(grid, panels.items(), strict=True):
            _draw_beta(row[0], panel)
            row[0].set_title(f"{name}: entries of $\\beta_t$", fontsize=9)
            for axes, (label, value) in zip(row[1:], _Gammas(panel), strict=True):
                plain = {"xlabel": "", "ylabel": "", "write": None}
                heat_map(value, ax=axes, limit=limit, title=label, **plain)
                axes.set_aspect("equal")
                axes.set_xticks([])
                axes.set_yticks([])
        grid[-1][0].set_xlabel("time t (dots: limit of Theorem 6.3)")
        (image,) = grid[0][1].get_images()
        bar = figure.colorbar(image, ax=grid[:, 1:], shrink=0.7)
        bar.set_label("entry of $\\Gamma_t$")
        figure.suptitle(title)
    return figure


def _draw_beta(axes, panel: FlowPanel) -> None:
    t = np.asarray(panel.times)[1:]
    ends = []
    for i, limit in enumerate(np.ravel(panel.limit_beta)):
        colour = COLOURS[1 + i % (len(COLOURS) - 1)]
        axes.plot(t, np.asarray(panel.beta)[1:, i], color=colour)
        axes.plot(t[-1], limit, "o", color=colour, ms=4, clip_on=False)
        ends.append((float(limit), f"$\\beta_{i + 1}$", colour))
    axes.set(xscale="log")
    name_ends(axes, ends)


def _Gammas(panel: FlowPanel) -> list[tuple[str, Any]]:
    """Selects Gamma at the start, at three later times, and at its limit."""
    t = np.asarray(panel.times)
    found = [("start", panel.Gamma[0])]
    for place in np.linspace(0, len(t) - 1, 7)[[3, 5, 6]].round().astype(int):
        found.append((f"t = {t[place]:,.0f}", panel.Gamma[place]))
    return [*found, ("limit", panel.limit_Gamma)]


def flow_rates(panels: Mapping[str, FlowPanel], title: str):
    """Draws distances and excess risk over time with their proved bounds.

    Args:
        panels: Flows by name, one a row; one column for each of their quantities.
        title: What flows.

    Returns:
        The matplotlib figure.

    References:
        Zhang, Wu and Bartlett 2024, Lemmas G.3 to G.6. Verified by
        ``tests/experiments/test_gradient_flow.py``.
    """
    import matplotlib.pyplot as plt

    columns = len(next(iter(panels.values())).curves)
    with plt.rc_context({**STYLE, "font.size": 9}):
        figure, grid = axes_in_rows(len(panels) * columns, columns, (3.5, 2.7))
        for row, (name, panel) in zip(grid, panels.items(), strict=True):
            t = np.asarray(panel.times)[1:]
            for axes, (quantity, (values, bounds)) in zip(
                row, panel.curves.items(), strict=True
            ):
                values = np.asarray(values)[1:]
                axes.plot(t, values, color=COLOURS[0], label="the flow")
                for colour, (label, bound) in zip(
                    colours(2), bounds.items(), strict=False
                ):
                    bound = np.asarray(bound)[1:]
                    axes.plot(t, bound, "--", color=colour, label=label, linewidth=1.4)
                top = max(values.max(), *(np.max(b) for b in bounds.values()))
                low = values.max() * (1e-24 if "excess" in quantity else 1e-12)
                axes.set(xscale="log", yscale="log", ylim=(low, 3 * top))
                axes.set_title(name)
                axes.set_ylabel(quantity)
                axes.legend(fontsize=8, loc="lower left")
        for axes in grid[-1]:
            axes.set_xlabel("time t")
        figure.suptitle(title)
    return figure


def descents_beside_flow(
    flow: tuple[Any, Any],
    steps: Mapping[str, tuple[Any, Any]],
    sampled_times: Any,
    sampled: Mapping[str, Any],
    title: str,
):
    """Draws the excess risk of descents in steps and on samples, and of the flow.

    Args:
        flow: Times and excess of the flow.
        steps: Times and excess of gradient descent, by step size.
        sampled_times: Times of descent on samples.
        sampled: Its excess, (seeds, T), by batch size; drawn as mean and range.
        title: What is trained.

    Returns:
        The matplotlib figure.

    References:
        Zhang, Wu and Bartlett 2024, Section 6. Verified by
        ``tests/experiments/test_gradient_flow.py``.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), sharey=True)
        left.plot(*flow, "--", color=COLOURS[0], label="gradient flow")
        left.set(xlabel="time t = step size x steps", yscale="log")
        for colour, (label, (t, excess)) in zip(
            colours(1), steps.items(), strict=False
        ):
            left.plot(t, excess, ".-", color=colour, label=label, ms=4, linewidth=0.8)
        averages = {label: _range(sampled_times, v) for label, v in sampled.items()}
        shades = dict(zip(averages, colours(1), strict=False))
        limits = max(np.min(flow[1]), 1e-6) / 2, 2 * np.max(flow[1])
        error_curves(
            {"gradient flow": Curve(flow[1], exact=True, x=flow[0]), **averages},
            ax=right,
            xlabel="time t = step size x steps",
            ylabel="",
            ylim=limits,
            colours={"gradient flow": COLOURS[0], **shades},
        )
        left.set(ylabel="excess risk", ylim=limits)
        left.set_title("steps on the exact risk")
        right.set_title("steps on fresh prompts (mean and range of seeds)")
        left.legend(fontsize=8)
        figure.suptitle(title)
    return figure


def _range(times: Any, values: Any) -> Curve:
    """Returns a curve of the mean over seeds with the range as its band."""
    values = np.asarray(values)
    low, high = values.min(axis=0), values.max(axis=0)
    return Curve(values.mean(axis=0), low, high, x=times)


def fates_of_starts(settings: Sequence[FlowStarts], title: str):
    """Draws the excess risk of random starts by their outcome, and the shares.

    Args:
        settings: The settings, one panel each; a last panel has the shares.
        title: How the starts were drawn.

    Returns:
        The matplotlib figure.

    References:
        Zhang, Wu and Bartlett 2024, remark after Theorem 6.3. Verified by
        ``tests/experiments/test_gradient_flow.py``.
    """
    import matplotlib.pyplot as plt

    columns = -(-len(settings) // 2)
    with plt.rc_context({**STYLE, "font.size": 9, "lines.linewidth": 1.5}):
        figure = plt.figure(figsize=(max(2.2 * columns + 0.4, 6.5), 7.6))
        top, bottom = figure.subfigures(2, 1, height_ratios=(1.5, 1))  # pyrefly: ignore
        grid = top.subplots(2, columns, sharex=True, sharey=True, squeeze=False)
        for axes, setting in zip(grid.flat, settings, strict=False):
            _draw_starts(axes, setting)
        for axes in grid.flat[len(settings) :]:
            axes.set_visible(False)
        for axes in grid[-1]:
            axes.set_xlabel("time t")
        for axes in grid[:, 0]:
            axes.set_ylabel("excess risk")
        _draw_shares(bottom.subplots(), settings)
        figure.suptitle(title, fontsize=10)
    return figure


# Colours in the order of the outcomes: optimum green, spurious vermilion; grey if still
# moving.
_FATE_COLOURS = (*(COLOURS[i] for i in (3, 2, 5, 4)), "#888888")


def _draw_starts(axes, setting: FlowStarts) -> None:
    t = np.asarray(setting.times)[1:]
    excess = np.asarray(setting.excess)[:, 1:]
    for colour, own in zip(_shades(), setting.fates.values(), strict=False):
        if np.any(own):
            low, middle, high = np.nanquantile(excess[own], (0.05, 0.5, 0.95), axis=0)
            axes.fill_between(t, low, high, color=colour, alpha=0.25, linewidth=0)
            axes.plot(t, middle, color=colour)
    style = "--" if setting.is_minimum else ":"
    axes.axhline(setting.level, color="black", linestyle=style, linewidth=0.9, zorder=0)
    name, _, sizes = setting.label.rpartition(", d = ")
    axes.set(xscale="log", yscale="log", ylim=(1e-8, 30))
    axes.set_title(f"{name}\nd = {sizes}" if name else setting.label, fontsize=9)


def _shades():
    return itertools.cycle(_FATE_COLOURS)


def _draw_shares(axes, settings: Sequence[FlowStarts]) -> None:
    rows = np.arange(len(settings))[::-1]
    left = np.zeros(len(settings))
    for colour, name in zip(_shades(), settings[0].fates, strict=False):
        share = np.array([np.mean(setting.fates[name]) for setting in settings])
        if share.any():
            axes.barh(rows, share, left=left, color=colour, label=name, height=0.7)
        left += share
    for row, setting in zip(rows, settings, strict=True):
        low, high = setting.interval
        axes.plot([low, high], [row, row], color="black", linewidth=1.6)
    axes.plot([], [], color="black", label="95 % interval of the first share")
    kinds = (("--", "a local minimum"), (":", "stationary"))
    for style, kind in kinds:
        label = f"excess of the spurious point ({kind})"
        if (style == "--") in {setting.is_minimum for setting in settings}:
            axes.plot([], [], style, color="black", linewidth=0.9, label=label)
    axes.set_yticks(rows, [setting.label for setting in settings])
    axes.set(xlim=(0, 1), xlabel="share of the random starts")
    axes.grid(axis="y", visible=False)
    handles = axes.get_legend_handles_labels()
    axes.figure.legend(*handles, loc="outside lower center", ncols=2, fontsize=8)
