"""Numbers, tables, figures, claims and checks of a run."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.stats

from experiments import frame
from experiments.frame import Check, Claim, Report
from experiments.real_model.config import ARMS, Config
from experiments.real_model.published import beside
from icltheory import plotting
from icltheory.plotting.style import colours
from icltheory.statistics import (
    Estimate,
    adjust_holm,
    crossed_estimate,
    exact_mcnemar,
    paired_interval,
)


def report(
    config: Config, found: dict[str, Any], about: dict[str, Any], model: Any = None
) -> Report:
    """Builds the report of the weights ``about``, of the paper's model if it is one."""
    tested, updates = tested_rows(config, found["searches"]), found["updates"]
    shots = {name: own["shots"].items() for name, own in updates.items()}
    numbers: dict[str, Any] = {
        "weights": about,
        "curves": curves(config, found["curves"]),
        "searches": tested,
        "arms": arms(config, tested),
        "together": tested_rows(config, found["together"]),
        "grid": grid(config, found["grid"]),
        "growth": growth(found["conditions"]),
        "remark_4": remark_4(found["grid"], updates),
        "published": beside(model, tested),
        "updates": {
            name: {k: np.mean(v, axis=1).tolist() for k, v in own}
            for name, own in shots.items()
        },
    }
    return Report(
        numbers,
        checks=[rate_0(updates)],
        tables=tables(found["prompts"], numbers),
        claims=claims(config, numbers),
        figures={
            "grid.png": draw_grid(config, found["grid"]),
            "shots.png": draw_shots(numbers["curves"]),
            "condition_numbers.png": draw_conditions(found["conditions"]),
            "arms.png": draw_arms(numbers["arms"]),
            "updates.png": draw_updates(numbers["updates"]),
        },
        interval_level=config.level,
    )


# --- numbers


def interval(made: Estimate, level: float) -> dict[str, float]:
    """A mean with the ends of its interval."""
    low, high = made.interval(level)
    return {"mean": float(made.mean), "low": float(low), "high": float(high)}


def curves(config: Config, found: dict[str, Any]) -> dict[str, Any]:
    """Accuracies by number of demonstrations, over draws and questions."""
    made = {}
    for name, own in found.items():
        right, points = np.array(own["right"], float), []
        for one in (*right, right[-1] - right[0]):
            mean = crossed_estimate(one) if len(one) > 1 else Estimate.of(one[0])
            points.append(interval(mean, config.level))
        chance = {"majority": own["majority"], "chance": 1 / own["classes"]}
        both = {"points": points[:-1], "rise": points[-1]}
        made[name] = {"shots": own["shots"], **both, **chance}
    return made


def tested_rows(config: Config, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds paired differences with intervals, and p-values after Holm's correction."""
    pruned = [row for row in rows if row.get("chosen", row.get("rate"))]
    p = adjust_holm([exact_mcnemar(r["gained"], r["lost"]) for r in pruned])
    corrected, found = iter(p.tolist()), []
    for row in rows:
        own = {"difference": 0.0, "low": 0.0, "high": 0.0, "holm": None}
        if row in pruned:
            counts = row["gained"], row["lost"], row["questions"]
            low, high = paired_interval(*counts, level=config.level)
            difference = (row["gained"] - row["lost"]) / row["questions"]
            own = {"difference": difference, "low": low, "high": high}
            own["holm"] = next(corrected)
        found.append(row | own)
    return found


def beyond_chance(config: Config, row: dict[str, Any]) -> int:
    """Sign of the difference if the test rejects after Holm, else 0."""
    rejected = row["holm"] is not None and row["holm"] < 1 - config.level
    return int(np.sign(row["difference"])) if rejected else 0


def arms(config: Config, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean change over the tasks of each search of the first draw, by module."""
    found = []
    for module in config.modules:
        for arm in config.arms:
            place = module, arm, 0
            own = [r for r in rows if (r["module"], r["arm"], r["draw"]) == place]
            if own:
                tasks = {row["task"]: row["difference"] for row in own}
                mean = Estimate.of(np.array(list(tasks.values())))
                row = {"module": module, "search": ARMS[arm], "tasks": tasks}
                signs = [beyond_chance(config, one) for one in own]
                counts = {"better": signs.count(1), "worse": signs.count(-1)}
                found.append(row | interval(mean, config.level) | counts)
    return found


def grid(config: Config, found: dict[str, Any]) -> dict[str, Any]:
    """Mean change of accuracy by module, layer and rate over tasks, and trends."""
    means: dict[str, Any] = {}
    for module in config.modules:
        layers, change = sorted(map(int, next(iter(found.values()))[module])), []
        for own in found.values():
            each = [np.mean(own[module][str(layer)], axis=1) for layer in layers]
            change.append(np.array(each) - np.mean(own["unpruned"]))
        change = np.array(change)  # (tasks, layers, rates)
        trend = [[tau(layers, rate) for rate in task.T] for task in change]
        means[module] = {
            "layers": layers,
            "change": change.mean(axis=0),
            "by_task": change.mean(axis=(1, 2)),
            "trend": np.nan_to_num(trend).mean(axis=1),
        }
    return means


def tau(x: Any, y: Any) -> float:
    """Kendall's tau."""
    return float(scipy.stats.kendalltau(x, y).statistic)


def growth(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Whether the condition numbers of each matrix grow with depth."""
    found = {}
    for name in dict.fromkeys(row["matrix"] for row in rows):
        own = sorted((r for r in rows if r["matrix"] == name), key=lambda r: r["layer"])
        values = [row["condition_number"] for row in own]
        test = scipy.stats.kendalltau(range(len(own)), values, alternative="greater")
        found[name] = {
            "module": own[0]["module"],
            "median": float(np.median(values)),
            "relative": float(np.median([row["null_ratio"] for row in own])),
            "tau": float(test.statistic),
            "p": float(test.pvalue),
        }
    adjusted = adjust_holm([own["p"] for own in found.values()])
    for own, p in zip(found.values(), adjusted, strict=True):
        own["holm"] = float(p)
    return found


def remark_4(grid: dict[str, Any], updates: dict[str, Any]) -> list[dict[str, Any]]:
    """Within a rate, over layers: change of the update's norm against accuracy."""
    rows = []
    for name, own in updates.items():
        layers = sorted(own["pruned"], key=int)
        for module in (m for m in grid[name] if m != "unpruned"):
            sizes = [np.mean(own["pruned"][l][module], axis=1) for l in layers]
            right = [np.mean(grid[name][module][l], axis=1) for l in layers]
            sizes, right = np.array(sizes), np.array(right)
            # The first MLP of a model with parallel blocks sees no demonstrations.
            seen = sizes[:, 0] > 0
            ratio, right = sizes[seen, 1:] / sizes[seen, :1], right[seen]
            taus = [tau(a, b) for a, b in zip(ratio.T, right.T, strict=True)]
            rows.append({"task": name, "module": module, "tau": np.nan_to_num(taus)})
    return rows


def rate_0(updates: dict[str, Any]) -> Check:
    """At rate 0 the update of a pruned layer is that of the layer."""
    pruned = (own for task in updates.values() for own in task["pruned"].values())
    first = ([np.asarray(m)[0] for m in own.values()] for own in pruned)
    worst = max(np.ptp(one, axis=0).max() for one in first)
    return Check("implicit updates at rate 0, largest difference", worst, 0, "<=")


# --- claims and tables


def span(own: dict[str, Any], digits: int = 3) -> str:
    """A mean and its interval as words."""
    mean = own.get("mean", own.get("difference"))
    return f"{mean:+.{digits}f} [{own['low']:+.3f}, {own['high']:+.3f}]"


def claims(config: Config, found: dict[str, Any]) -> list[Claim]:
    """Returns each claim of the paper beside what was measured."""
    said, over = [], "over tasks and modules"

    def say(claim: str, measured: str, held: Any) -> None:
        said.append(Claim(claim, measured, held))

    def mean(values: Any) -> dict[str, float]:
        return interval(Estimate.of(np.asarray(values)), config.level)

    rises = [own["rise"] for own in found["curves"].values()]
    up = sum(rise["low"] > 0 for rise in rises)
    words = f"in {up} of {len(rises)} tasks the interval is above 0"
    say("accuracy rises with the number of demonstrations", words, up == len(rises))
    trend = mean(np.concatenate([own["trend"] for own in found["grid"].values()]))
    claim = "deep layers can be pruned at higher rates than shallow ones"
    words = f"Kendall's tau of accuracy and layer, mean {span(trend, 2)} {over}"
    say(claim, words, trend["low"] > 0)
    if len(found["grid"]) > 1:
        mlp, attention = (found["grid"][name]["by_task"] for name in ("mlp", "attn"))
        more = mean(mlp - attention)
        words = f"accuracy of pruned MLP minus pruned attention {span(more)} over tasks"
        say("the MLP can be pruned more than attention", words, more["low"] > 0)
    matrices = found["growth"].values()
    grow, count = sum(own["holm"] < 1 - config.level for own in matrices), len(matrices)
    words = f"in {grow} of {count} matrices after Holm"
    say("condition numbers grow with depth", words, grow == count)
    own = [row for row in found["searches"] if row["arm"] == "algorithm1"]
    signs = [beyond_chance(config, row) for row in own]
    better, worse = signs.count(1), signs.count(-1)
    gain = np.mean([row["difference"] for row in own])
    words = f"in {better} of {len(own)} searches after Holm, worse in {worse}; mean "
    words += f"difference {gain:+.3f}"
    say("Algorithm 1 gains on the test set", words, better > 0 and worse == 0)
    if "scale" in config.arms:
        first = [row for row in found["searches"] if row["draw"] == 0]
        gains = {(r["arm"], r["task"], r["module"]): r["difference"] for r in first}
        places = [place for arm, *place in gains if arm == "scale"]
        pairs = ((gains["algorithm1", *at], gains["scale", *at]) for at in places)
        against = mean([gain - other for gain, other in pairs])
        claim = "Algorithm 1 gains more than one factor on the layer's output"
        words = f"mean difference of the gains {span(against)} {over}"
        say(claim, words, against["low"] > 0)
    smaller = mean([np.mean(row["tau"]) for row in found["remark_4"]])
    claim = "pruning that makes the implicit update smaller goes with better accuracy "
    words = f"Kendall's tau within a rate, mean {span(smaller, 2)} {over}"
    say(f"{claim}(Remark 4)", words, smaller["high"] < 0)
    return said


def tables(prompts: dict[str, Any], found: dict[str, Any]) -> list[Any]:
    """Prompts, curves, searches, arms, left-out tasks, and published rows if any."""
    tried = [
        {"task": name, "prompt": prompt, "scoring": scoring, "accuracy": accuracy}
        | {"chosen": "yes" if [prompt, scoring] == own["chosen"][1:] else ""}
        for name, own in prompts.items()
        for prompt, scoring, accuracy in own["rows"]
    ]
    rises = []
    for name, own in found["curves"].items():
        points = zip(own["shots"], own["points"], strict=True)
        cells = ", ".join(f"{k}: {point['mean']:.3f}" for k, point in points)
        row = {"task": name, "cells": cells, "rise": span(own["rise"])}
        rises.append(row | {"majority": own["majority"]})
    searched = [{"search": ARMS[row["arm"]]} | row for row in found["searches"]]
    means, rows = [], found["published"]
    for row in found["arms"]:
        means.append(row | {"span": span(row), "count": len(row["tasks"])})
    long = "task | draw | module | search | layer | rate | before | after | "
    cells = "{task} | {draw} | {module} | {search} | {layer} | {chosen:g} | "
    change, clip = "{before:.3f} | {changed} | {p}", "{layer}:{module}:{rate:g}"
    made: dict[str, tuple] = {
        "prompts, by accuracy without pruning": (
            tried,
            "task | template + words | scoring | accuracy | chosen",
            "{task} | {prompt} | {scoring} | {accuracy:.3f} | {chosen}",
        ),
        "accuracy against demonstrations (test)": (
            rises,
            "task | shots: accuracy | most - fewest | largest class",
            "{task} | {cells} | {rise} | {majority:.3f}",
        ),
        "searches: chosen on validation, tested once": (
            changed(searched),
            f"{long}difference | p (Holm)",
            f"{cells}{{before:.3f}} | {{after:.3f}} | {{changed}} | {{p}}",
        ),
        "searches of the first draw, mean over tasks": (
            means,
            "module | search | mean difference | tasks | better, worse (Holm)",
            "{module} | {search} | {span} | {count} | {better}, {worse}",
        ),
        "one clip for all other tasks": (
            changed(found["together"]),
            "task | clip | gain of the others | before | difference | p (Holm)",
            f"{{left_out}} | {clip} | {{validation_gain:+.3f}} | {change}",
        ),
    }
    shown = [frame.table(own, (a, b), name) for name, (own, a, b) in made.items()]
    title = "beside Tables 2 to 8 of the paper"
    return [*shown, frame.table(rows, title=title)] if rows else shown


def changed(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds the cells of a difference and its p-value."""
    return [
        row | {"changed": "not pruned", "p": ""}
        if row["holm"] is None
        else row | {"changed": span(row), "p": f"{row['holm']:.2g}"}
        for row in rows
    ]


# --- figures


def draw_grid(config: Config, found: dict[str, Any]) -> Any:
    """Change of accuracy by layer and rate: a row per module, a column per task."""
    import matplotlib.pyplot as plt

    rows, columns = len(config.modules), len(found)
    look = {"sharex": True, "sharey": True, "layout": "constrained", "squeeze": False}
    with plt.rc_context({**plotting.STYLE, "font.size": 9}):
        size = max(1.5 * columns + 1.5, 6.0), 3.6 * rows
        figure, axes = plt.subplots(rows, columns, figsize=size, **look)
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
                    xlabel="clipping rate" if i == rows - 1 else "",
                    ylabel="" if j else f"layer, {module} pruned",
                    title="" if i else name,
                )
                axes[i, j].tick_params(axis="x", labelrotation=90)
                if len(layers) > 10:
                    axes[i, j].set_yticks(range(0, len(layers), 5), layers[::5])
        label = "change of validation accuracy"
        figure.colorbar(image, ax=axes, shrink=0.7, extend="both", label=label)
    return figure


def draw_shots(curves: dict[str, Any]) -> Any:
    """Test accuracy against demonstrations, beside the largest class and chance."""
    panels = {}
    for name, own in curves.items():
        means = [point["mean"] for point in own["points"]]
        halves = [(point["high"] - point["low"]) / 2 for point in own["points"]]
        panels[name] = plotting.LinePanel(
            {"accuracy": plotting.Line(own["shots"], means, error=halves)},
            "demonstrations",
            "test accuracy",
            levels={"largest class": own["majority"], "chance": own["chance"]},
            ylim=(0, 1),
        )
    return plotting.line_panels(panels, "Accuracy against demonstrations", 4)


def draw_conditions(rows: list[dict[str, Any]]) -> Any:
    """Condition numbers by layer, one panel per module (Figure 3)."""
    panels: dict[str, Any] = {}
    label = "condition number / random matrix"
    for row in sorted(rows, key=lambda row: row["layer"]):
        new = plotting.LinePanel({}, "layer", label, yscale="log")
        lines: Any = panels.setdefault(row["module"], new).lines
        line = lines.setdefault(row["matrix"], plotting.Line([], [], len(lines)))
        line.x.append(row["layer"])
        line.y.append(row["null_ratio"])
    return plotting.line_panels(panels, "Condition numbers by layer", 2)


def draw_arms(arms: list[dict[str, Any]]) -> Any:
    """Test accuracy after each search minus before: tasks, and their mean."""
    import matplotlib.pyplot as plt

    modules = list(dict.fromkeys(row["module"] for row in arms))
    tasks = dict.fromkeys(name for row in arms for name in row["tasks"])
    # More tasks than colours differ by their markers.
    every = zip(tasks, colours(1), "os^DvPX", strict=False)
    looks = {name: look for name, *look in every}
    look = {"sharex": True, "layout": "constrained", "squeeze": False}
    with plt.rc_context({**plotting.STYLE, "font.size": 9}):
        tall = max(sum(row["module"] == module for row in arms) for module in modules)
        size = 4.6 * len(modules), 0.42 * tall + 1.6
        figure, axes = plt.subplots(1, len(modules), figsize=size, **look)
        for ax, module in zip(axes[0], modules, strict=True):
            own = [row for row in arms if row["module"] == module]
            for place, row in enumerate(own):
                for step, (name, value) in enumerate(row["tasks"].items()):
                    label = name if module == modules[0] and not place else None
                    colour, marker = looks[name]
                    dot = {"ms": 4, "color": colour, "label": label}
                    # Tasks stand below one another, as many have the same value.
                    ax.plot(value, place - 0.3 + 0.07 * step, marker, **dot)
                ends = [[row["mean"] - row["low"]], [row["high"] - row["mean"]]]
                ax.errorbar(row["mean"], place + 0.25, xerr=ends, fmt="kD", ms=4)
            ax.axvline(0, color="0.6", lw=1)
            ax.set_yticks(range(len(own)), [row["search"] for row in own])
            ax.invert_yaxis()
            ax.set(xlabel="test accuracy, after minus before", title=f"{module} pruned")
        figure.legend(loc="outside lower center", ncols=len(tasks), frameon=False)
    return figure


def draw_updates(sizes: dict[str, Any]) -> Any:
    """Size of the implicit update over that of the matrix, by layer and shots."""
    panels = {}
    for name, own in sizes.items():
        lines = {}
        for place, (shots, mean) in enumerate(own.items()):
            line = plotting.Line(range(len(mean)), mean, place)
            lines[f"{shots} demonstrations"] = line
        panels[name] = plotting.LinePanel(lines, "layer", "|dW| / |W|")
    return plotting.line_panels(panels, "Implicit update of the MLP's first matrix", 3)
