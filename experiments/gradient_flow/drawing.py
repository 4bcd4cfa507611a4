"""Gradient flows: paths, their bounds, descents beside them, and random starts."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory.plotting.style import COLOURS, STYLE, colours

__all__ = [
    "FlowPanel",
    "FlowStarts",
    "descents_beside_flow",
    "fates_of_starts",
    "flow_paths",
    "flow_rates",
]


class FlowPanel(NamedTuple):
    """A flow to draw.

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
    """Random starts of one setting.

    Attributes:
        label: What is trained, and its d and M.
        times: Times, the first of them 0.
        excess: Excess risks, (starts, T).
        level: Excess of the spurious minimum.
        is_minimum: Whether it is known to be a local minimum.
        shares: Share of the starts by fate.
        interval: Ends of the interval of the first share.
    """

    label: str
    times: Any
    excess: Any
    level: float
    is_minimum: bool
    shares: Mapping[str, float]
    interval: tuple[float, float]


def flow_paths(panels: Mapping[str, FlowPanel], title: str):
    """Draws the entries of beta and Gamma over time, with their limits at the right.

    Args:
        panels: Flows by name, one a column.
        title: What flows.

    Returns:
        The matplotlib figure.

    References:
        Zhang, Wu and Bartlett 2024, Theorem 6.3. Verified by
        ``tests/experiments/test_gradient_flow.py``.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            2, len(panels), figsize=(5.2 * len(panels), 6.4), squeeze=False
        )
        for column, (name, panel) in zip(grid.T, panels.items(), strict=True):
            parts = (
                (column[0], panel.beta, panel.limit_beta, r"entries of $\beta_t$"),
                (column[1], panel.Gamma, panel.limit_Gamma, r"entries of $\Gamma_t$"),
            )
            t = np.asarray(panel.times)[1:]
            for axes, values, limit, label in parts:
                values = np.asarray(values)[1:].reshape(len(t), -1)
                limit = np.ravel(limit)
                for i in range(values.shape[1]):
                    colour = COLOURS[1 + i % (len(COLOURS) - 1)]
                    axes.plot(t, values[:, i], color=colour, linewidth=1.1)
                    axes.plot(t[-1] * 2, limit[i], ".", color=colour, ms=7)
                axes.set(xscale="log", ylabel=label)
            column[0].set_title(name)
            column[1].set_xlabel("time t   (dots: limit of Theorem 6.3)")
        figure.suptitle(title)
    return figure


def flow_rates(panels: Mapping[str, FlowPanel], title: str):
    """Draws distances and excess risk over time beside their proved bounds.

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
        figure, grid = plt.subplots(
            len(panels),
            columns,
            figsize=(4.1 * columns, 3.3 * len(panels)),
            squeeze=False,
        )
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
                axes.set_title(f"{name}: {quantity}", fontsize=9)
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
    """Draws the excess risk of descents in steps and on samples beside the flow's.

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
        for axes in (left, right):
            axes.plot(*flow, color=COLOURS[0], label="gradient flow")
            axes.set(xlabel="time t = step size x steps", yscale="log")
        for colour, (label, (t, excess)) in zip(
            colours(1), steps.items(), strict=False
        ):
            left.plot(t, excess, ".-", color=colour, label=label, ms=4, linewidth=0.8)
        for colour, (label, values) in zip(colours(1), sampled.items(), strict=False):
            values = np.asarray(values)
            right.plot(sampled_times, values.mean(axis=0), color=colour, label=label)
            right.fill_between(
                sampled_times,
                values.min(axis=0),
                values.max(axis=0),
                color=colour,
                alpha=0.2,
                linewidth=0,
            )
        low = max(np.min(flow[1]), 1e-6)
        left.set(ylabel="excess risk", ylim=(low / 2, 2 * np.max(flow[1])))
        left.set_title("steps on the exact risk")
        right.set_title("steps on fresh prompts (mean and range of seeds)")
        left.legend(fontsize=8)
        right.legend(fontsize=8, loc="lower left")
        figure.suptitle(title)
    return figure


def fates_of_starts(settings: Sequence[FlowStarts], title: str):
    """Draws the excess of every random start over time, and the share of each fate.

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
    with plt.rc_context({**STYLE, "font.size": 9}):
        figure = plt.figure(figsize=(max(3.1 * columns + 1, 8), 9.2))
        top, bottom = figure.subfigures(2, 1, height_ratios=(1.75, 1))  # pyrefly: ignore
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
        figure.suptitle(title)
    return figure


def _draw_starts(axes, setting: FlowStarts) -> None:
    t = np.asarray(setting.times)[1:]
    for row in np.asarray(setting.excess)[:, 1:]:
        axes.plot(t, row, color=COLOURS[1], alpha=0.15, linewidth=0.7)
    kind = "a local minimum" if setting.is_minimum else "stationary"
    axes.axhline(setting.level, color=COLOURS[2], linestyle="--", linewidth=1.3)
    axes.annotate(
        f"spurious point ({kind})",
        (t[0], setting.level),
        (2, -10),
        textcoords="offset points",
        color=COLOURS[2],
        fontsize=7.5,
        bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1},
    )
    axes.set(xscale="log", yscale="log", ylim=(1e-8, 30), title=setting.label)


def _draw_shares(axes, settings: Sequence[FlowStarts]) -> None:
    rows = np.arange(len(settings))[::-1]
    left = np.zeros(len(settings))
    shades = itertools.cycle((*(COLOURS[i] for i in (3, 2, 5, 4)), "#BBBBBB"))
    for colour, name in zip(shades, settings[0].shares, strict=False):
        share = np.array([setting.shares[name] for setting in settings])
        if share.any():
            axes.barh(rows, share, left=left, color=colour, label=name, height=0.7)
        left += share
    for row, setting in zip(rows, settings, strict=True):
        low, high = setting.interval
        axes.plot([low, high], [row, row], color="black", linewidth=1.6)
    axes.plot([], [], color="black", label="95 % interval of the first share")
    axes.set_yticks(rows, [setting.label for setting in settings])
    axes.set(xlim=(0, 1), xlabel="share of the random starts")
    axes.grid(axis="y", visible=False)
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
