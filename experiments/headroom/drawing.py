"""The figures of the experiment."""

from typing import Any

import numpy as np

from experiments._frame.looks import key, layer_marker, page, rates_axis
from experiments.headroom.arms import ARMS, NAMES
from experiments.headroom.config import Config
from experiments.headroom.summary import ALL, GainRow, short_name
from icltheory.plotting import COLOURS


def gains_figure(config: Config, rows: dict[str, list[GainRow]]) -> Any:
    """Draws the gains of all arms on validation and test, one panel per prompt set."""
    percent = f"{100 * config.level:g} %"
    title = (
        "What the setting chosen on validation prompts changes on test prompts\n"
        f"({len(config.seeds)} models; bars: {percent} intervals over the models; "
        "filled: p below the level after Holm)"
    )
    panels = rows if len(rows) > 2 else {ALL: rows[ALL]}
    with page([short_name(config, name) for name in panels], 3, title, 2.8) as (
        shown,
        entries,
    ):
        for place, (some, axes) in enumerate(zip(panels.values(), shown, strict=True)):
            _gain_panel(axes, config, some, named=place % 3 == 0)
        entries["validation, mean"] = key(
            color="0.5", marker="|", linestyle="none", markersize=9, markeredgewidth=2
        )
        entries["test, mean and interval"] = key(color=COLOURS[1], marker="o")
        entries["test, each model"] = key(
            color=COLOURS[1], marker=".", linestyle="none", alpha=0.5
        )
    return shown[0].figure


def _gain_panel(axes: Any, config: Config, rows: list[GainRow], named: bool) -> None:
    for place, row in enumerate(rows):
        y, numbers = -place, row.numbers(config.level)
        test = {name: 100 * np.asarray(x) for name, x in numbers["test"].items()}
        axes.plot(
            100 * numbers["validation"]["mean"],
            y,
            "|",
            color="0.5",
            markersize=9,
            markeredgewidth=2,
        )
        axes.plot(
            test["values"], np.full(len(row.test), y), ".", color=COLOURS[1], alpha=0.5
        )
        axes.plot([test["low"], test["high"]], [y, y], color=COLOURS[1])
        beyond_chance = row.holm <= 1 - config.level
        axes.plot(
            test["mean"],
            y,
            "o",
            color=COLOURS[1],
            markerfacecolor=COLOURS[1] if beyond_chance else "white",
        )
    axes.axvline(0, color="grey", linewidth=0.9)
    axes.set_yticks(
        [-place for place in range(len(rows))],
        [NAMES[row.arm] if named else "" for row in rows],
    )
    axes.set_xlabel("change of accuracy (points)")


def rates_figure(config: Config, curves: dict[str, Any]) -> Any:
    """Draws the accuracy lost at each rate by each method, over all layers."""
    title = (
        "Change of the validation accuracy at each clipping rate,\nmean over layers, "
        f"modules and prompts (bands: {100 * config.level:g} % intervals over "
        f"{len(config.seeds)} models)"
    )
    with page([""], 1, title, 3.2) as (shown, _):
        (axes,) = shown
        for place, (arm, curve) in enumerate(curves.items()):
            colour = COLOURS[1 + list(ARMS).index(arm) % (len(COLOURS) - 1)]
            mean, low, high = (
                100 * np.asarray(curve[name]) for name in ("mean", "low", "high")
            )
            axes.plot(
                config.rates,
                mean,
                color=colour,
                marker=layer_marker(place),
                label=NAMES[arm],
            )
            axes.fill_between(
                config.rates, low, high, color=colour, alpha=0.2, linewidth=0
            )
        axes.axhline(0, color="grey", linewidth=0.9)
        axes.set_ylabel("change of accuracy (points)")
        rates_axis(axes)
    return shown[0].figure
