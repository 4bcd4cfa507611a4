"""Figures of training with its prediction, and of steps against the share alpha."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icltheory.plotting import COLOURS, STYLE, panel_grid

__all__ = ["paths", "steps_against_shares"]


def paths(panels: Mapping[str, Any], every: int, title: str):
    """Draws attention and hinge loss over training steps, one panel per setting.

    Args:
        panels: Records with ``losses`` ``(S, steps)``, ``masses`` ``(S, T)`` and
            ``predicted``, by the title of the panel.
        every: Steps between two masses.
        title: What is shown.

    Returns:
        The matplotlib figure.

    References:
        Verified by ``tests/experiments/test_pattern_dynamics.py``.
    """
    size = (3.0, 3.0)
    with panel_grid(panels, 3, title, size, legend=True) as (figure, shown, entries):
        for axes, one in zip(shown, panels.values(), strict=True):
            steps = np.arange(one.losses.shape[1])
            places = every * np.arange(one.masses.shape[1])
            lines = (
                ("attention on the query's pattern", COLOURS[0], places, one.masses,
                 one.predicted.masses),
                ("hinge loss", COLOURS[1], steps, one.losses, one.predicted.losses),
            )  # fmt: skip
            for name, colour, x, found, predicted in lines:
                style: dict[str, Any] = {"color": colour, "linewidth": 1.2}
                drawn = axes.plot(x, np.asarray(found).T, alpha=0.8, **style)
                dashed = axes.plot(steps, np.asarray(predicted).T, "--", **style)
                entries[name] = drawn[0]
                entries[f"{name}, predicted"] = dashed[0]
            axes.set(xlabel="step", ylim=(-0.02, 1.05))
    return figure


def steps_against_shares(
    shares: Sequence[float],
    points: Mapping[str, tuple[Any, Any, tuple[float, float]]],
    title: str,
):
    """Draws steps against alpha with A / alpha + B, on logarithmic axes.

    Args:
        shares: The shares alpha.
        points: Steps of training and predicted, ``(shares, S)``, and A and B, by name.
        title: What is shown.

    Returns:
        The matplotlib figure.

    References:
        Li et al. (2024), Theorem 1. Verified by
        ``tests/experiments/test_pattern_dynamics.py``.
    """
    import matplotlib.pyplot as plt

    places = np.asarray(shares, float)
    fine = np.geomspace(places.min(), places.max(), 100)
    with plt.rc_context({**STYLE, "font.size": 9}):
        figure, axes = plt.subplots(figsize=(6.2, 4.2))
        marks = zip(
            "os^D", (COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[3]), strict=True
        )
        for (name, (found, predicted, law)), mark in zip(
            points.items(), marks, strict=False
        ):
            marker, colour = mark
            x = np.broadcast_to(places[:, None], np.shape(found))
            axes.plot(x, found, marker, color=colour, markersize=4.5, alpha=0.8)
            axes.plot(x, predicted, "x", color=colour, markersize=6)
            A, B = law
            label = rf"{name}: {A:.0f} / $\alpha$ + {B:.0f}"
            axes.plot(fine, A / fine + B, color=colour, label=label)
        first = np.mean(next(iter(points.values()))[0][0])
        axes.plot(
            fine,
            0.75 * first * (fine / places.max()) ** (-2 / 3),
            color="grey",
            linestyle=":",
            label=r"slope $-2/3$ (Theorem 1)",
        )
        axes.set(xscale="log", yscale="log", ylabel="steps")
        axes.set_xlabel(r"share $\alpha$ of examples of the task's two patterns")
        axes.set_xticks(shares, [f"{x:g}" for x in shares])
        low, high = axes.get_ylim()
        ticks = [
            n for n in (50, 100, 150, 200, 300, 400, 600, 1000) if low <= n <= high
        ]
        axes.set_yticks(ticks, [f"{n:,}" for n in ticks])
        axes.minorticks_off()
        axes.legend()
        axes.set_title(title, fontsize=9)
    return figure
