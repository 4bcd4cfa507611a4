"""Figures of a run."""

from typing import Any

import numpy as np

from experiments.real_model.config import Config
from icltheory import plotting
from icltheory.plotting.style import colours


def grid_figure(config: Config, found: dict[str, Any]) -> Any:
    """Change of accuracy by layer and rate: a row a module, a column a task."""
    import matplotlib.pyplot as plt

    with plt.rc_context({**plotting.STYLE, "font.size": 9}):
        shape = len(config.modules), len(found)
        width = max(1.5 * shape[1] + 1.5, 6.0)
        figure, axes = plt.subplots(
            *shape,
            figsize=(width, 3.6 * shape[0]),
            squeeze=False,
            sharex=True,
            sharey=True,
            layout="constrained",
        )
        image: Any = None
        for i, module in enumerate(config.modules):
            for j, (name, own) in enumerate(found.items()):
                layers = sorted(map(int, own[module]))
                accuracy = [np.mean(own[module][str(l)], axis=1) for l in layers]
                image = plotting.heat_map(
                    np.array(accuracy) - np.mean(own["unpruned"]),
                    ax=axes[i, j],
                    rows=layers,
                    columns=[f"{rate:g}" for rate in config.grid_rates],
                    limit=0.3,
                    write=None,
                    xlabel="clipping rate" if i == shape[0] - 1 else "",
                    ylabel="" if j else f"layer, {module} pruned",
                    title="" if i else name,
                )
                axes[i, j].tick_params(axis="x", labelrotation=90)
                if len(layers) > 10:
                    axes[i, j].set_yticks(range(0, len(layers), 5), layers[::5])
        label = "change of validation accuracy"
        figure.colorbar(image, ax=axes, shrink=0.7, extend="both", label=label)
    return figure


def shots_figure(curves: dict[str, Any]) -> Any:
    """Test accuracy against demonstrations, beside the largest class and chance."""
    panels = {
        name: plotting.LinePanel(
            {
                "accuracy": plotting.Line(
                    own["shots"],
                    [p["mean"] for p in own["points"]],
                    error=[(p["high"] - p["low"]) / 2 for p in own["points"]],
                )
            },
            "demonstrations",
            "test accuracy",
            levels={"largest class": own["majority"], "chance": own["chance"]},
            ylim=(0, 1),
        )
        for name, own in curves.items()
    }
    return plotting.line_panels(panels, "Accuracy against demonstrations", 3)


def conditions_figure(rows: list[dict[str, Any]]) -> Any:
    """Condition numbers by layer, a panel a module (Figure 3)."""
    panels = {}
    for module in dict.fromkeys(row["module"] for row in rows):
        names = dict.fromkeys(r["matrix"] for r in rows if r["module"] == module)
        lines = {}
        for colour, name in enumerate(names):
            own = sorted(
                (r for r in rows if r["matrix"] == name), key=lambda r: r["layer"]
            )
            lines[name] = plotting.Line(
                [r["layer"] for r in own], [r["null_ratio"] for r in own], colour
            )
        panels[module] = plotting.LinePanel(
            lines, "layer", "condition number / random matrix", yscale="log"
        )
    return plotting.line_panels(panels, "Condition numbers by layer", 2)


def arms_figure(arms: list[dict[str, Any]]) -> Any:
    """Test accuracy after each search minus before: tasks, and their mean."""
    import matplotlib.pyplot as plt

    modules = list(dict.fromkeys(row["module"] for row in arms))
    with plt.rc_context({**plotting.STYLE, "font.size": 9}):
        tall = max(sum(row["module"] == module for row in arms) for module in modules)
        figure, axes = plt.subplots(
            1,
            len(modules),
            figsize=(4.6 * len(modules), 0.42 * tall + 1.6),
            squeeze=False,
            sharex=True,
            layout="constrained",
        )
        tasks = dict.fromkeys(name for row in arms for name in row["tasks"])
        shades = dict(zip(tasks, colours(1), strict=False))
        for ax, module in zip(axes[0], modules, strict=True):
            own = [row for row in arms if row["module"] == module]
            for place, row in enumerate(own):
                for step, (name, value) in enumerate(row["tasks"].items()):
                    label = name if module == modules[0] and not place else None
                    dot = {"ms": 4, "color": shades[name], "label": label}
                    # Tasks stand below one another, as many have the same value.
                    ax.plot(value, place - 0.3 + 0.07 * step, "o", **dot)
                ends = [[row["mean"] - row["low"]], [row["high"] - row["mean"]]]
                ax.errorbar(row["mean"], place + 0.25, xerr=ends, fmt="kD", ms=4)
            ax.axvline(0, color="0.6", lw=1)
            ax.set_yticks(range(len(own)), [row["search"] for row in own])
            ax.invert_yaxis()
            ax.set_xlabel("test accuracy, after minus before")
            ax.set_title(f"{module} pruned")
        figure.legend(loc="outside lower center", ncols=len(tasks), frameon=False)
    return figure


def updates_figure(sizes: dict[str, Any]) -> Any:
    """Size of the implicit update over that of the matrix, by layer and shots."""
    panels = {
        name: plotting.LinePanel(
            {
                f"{shots} demonstrations": plotting.Line(range(len(mean)), mean, place)
                for place, (shots, mean) in enumerate(own.items())
            },
            "layer",
            "|dW| / |W|",
        )
        for name, own in sizes.items()
    }
    return plotting.line_panels(panels, "Implicit update of the MLP's first matrix", 3)
