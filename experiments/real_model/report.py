"""Tables, figures, claims and checks of a run."""

from typing import Any

import numpy as np
import scipy.stats
from rich.table import Table

from experiments._frame.report import Check, Report
from experiments.real_model import figures
from experiments.real_model.claims import beyond_chance, claims_of, span
from experiments.real_model.config import Config
from experiments.real_model.published import beside
from icltheory.statistics import (
    Estimate,
    adjust_holm,
    crossed_estimate,
    exact_mcnemar,
    paired_interval,
)

ARM_NAMES = {
    "algorithm1": "Algorithm 1",
    "algorithm1_kv": "layer by W_K, W_V",
    "random_layer": "random layer",
    "activation": "activation-aware",
    "magnitude": "magnitude",
    "random_vectors": "random vectors",
    "scale": "scaled output",
    "temperature": "attention temperature",
}


def report(
    config: Config,
    found: dict[str, Any],
    about: dict[str, Any],
    model: str | None = None,
) -> Report:
    """Builds the report from the parts of a run.

    Args:
        config: The config of the run.
        found: Its parts.
        about: Which weights these are.
        model: Name of the paper's model that has this architecture.
    """
    curves = _curves(config, found["curves"])
    tested = _tested(config, found["searches"])
    arms = _arms(config, tested)
    left_out = _tested(config, found["together"])
    grid = _grid(config, found["grid"])
    growth = _growth(found["conditions"])
    remark = _remark_4(found["grid"], found["updates"])
    published = beside(model, tested)
    numbers = {
        "weights": about,
        "curves": curves,
        "searches": tested,
        "arms": arms,
        "together": left_out,
        "grid": grid,
        "growth": growth,
        "remark_4": remark,
        "published": published,
        "updates": {
            name: {k: np.mean(v, axis=1).tolist() for k, v in own["shots"].items()}
            for name, own in found["updates"].items()
        },
    }
    return Report(
        numbers,
        checks=[_rate_0(found["updates"])],
        tables=[
            _table(
                "prompts, by accuracy without pruning", _prompt_rows(found["prompts"])
            ),
            _table("accuracy against demonstrations (test)", _curve_rows(curves)),
            _table("searches: chosen on validation, tested once", _test_rows(tested)),
            _table("searches of the first draw, mean over tasks", _arm_rows(arms)),
            _table("one clip for all other tasks", _left_out_rows(left_out)),
            *(
                [_table("beside Tables 2 to 8 of the paper", published)]
                * bool(published)
            ),
        ],
        claims=claims_of(config, curves, grid, growth, tested, remark),
        figures={
            "grid.png": figures.grid_figure(config, found["grid"]),
            "shots.png": figures.shots_figure(curves),
            "condition_numbers.png": figures.conditions_figure(found["conditions"]),
            "arms.png": figures.arms_figure(arms),
            "updates.png": figures.updates_figure(numbers["updates"]),
        },
        interval_level=config.level,
    )


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title)
    for name in rows[0] if rows else ():
        table.add_column(name, justify="left" if name == "task" else "right")
    for row in rows:
        table.add_row(*map(str, row.values()))
    return table


def _prompt_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "task": name,
            "template + words": prompt,
            "scoring": scoring,
            "accuracy": f"{accuracy:.3f}",
            "chosen": "yes" if [prompt, scoring] == own["chosen"][1:] else "",
        }
        for name, own in found.items()
        for prompt, scoring, accuracy in own["rows"]
    ]


def _curves(config: Config, found: dict[str, Any]) -> dict[str, Any]:
    curves = {}
    for name, own in found.items():
        right = np.array(own["right"], float)

        def interval(values: np.ndarray) -> dict[str, float]:
            if len(values) > 1:
                made = crossed_estimate(values)
            else:
                made = Estimate.of(values[0])
            low, high = made.interval(config.level)
            return {"mean": float(made.mean), "low": float(low), "high": float(high)}

        curves[name] = {
            "shots": own["shots"],
            "points": [interval(values) for values in right],
            "rise": interval(right[-1] - right[0]),
            "majority": own["majority"],
            "chance": 1 / own["classes"],
        }
    return curves


def _curve_rows(curves: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for name, own in curves.items():
        points = zip(own["shots"], own["points"], strict=True)
        cells = ", ".join(f"{k}: {p['mean']:.3f}" for k, p in points)
        rise = own["rise"]
        rows.append(
            {
                "task": name,
                "shots: accuracy": cells,
                "most - fewest": f"{rise['mean']:+.3f} "
                + span(rise["low"], rise["high"], "+"),
                "largest class": f"{own['majority']:.3f}",
            }
        )
    return rows


def _tested(config: Config, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds paired differences with intervals, and p-values after Holm's correction.

    A search that chose no pruning tests nothing: its difference is 0.
    """
    pruned = [row for row in rows if row.get("chosen", row.get("rate"))]
    p = adjust_holm([exact_mcnemar(r["gained"], r["lost"]) for r in pruned])
    corrected = iter(p.tolist())
    found = []
    for row in rows:
        own = {"difference": 0.0, "low": 0.0, "high": 0.0, "holm": None}
        if row in pruned:
            low, high = paired_interval(
                row["gained"], row["lost"], row["questions"], level=config.level
            )
            difference = (row["gained"] - row["lost"]) / row["questions"]
            own = {"difference": difference, "low": low, "high": high}
            own["holm"] = next(corrected)
        found.append(row | own)
    return found


def _changed(row: dict[str, Any]) -> dict[str, str]:
    """The cells of a difference and its p-value."""
    if row["holm"] is None:
        return {"difference": "not pruned", "p (Holm)": ""}
    interval = span(row["low"], row["high"], "+")
    return {
        "difference": f"{row['difference']:+.3f} {interval}",
        "p (Holm)": f"{row['holm']:.2g}",
    }


def _test_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "task": row["task"],
            "draw": row["draw"],
            "module": row["module"],
            "search": ARM_NAMES[row["arm"]],
            "layer": row["layer"],
            "rate": f"{row['chosen']:g}",
            "before": f"{row['before']:.3f}",
            "after": f"{row['after']:.3f}",
            **_changed(row),
        }
        for row in rows
    ]


def _arms(config: Config, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean change over the tasks of each search of the first draw, by module."""
    found = []
    for module in config.modules:
        for arm in config.arms:
            own = [
                row
                for row in rows
                if (row["module"], row["arm"], row["draw"]) == (module, arm, 0)
            ]
            if not own:
                continue
            tasks = {row["task"]: row["difference"] for row in own}
            mean = Estimate.of(np.array(list(tasks.values())))
            low, high = mean.interval(config.level)
            found.append(
                {
                    "module": module,
                    "search": ARM_NAMES[arm],
                    "tasks": tasks,
                    "mean": float(mean.mean),
                    "low": float(low),
                    "high": float(high),
                    "better": sum(beyond_chance(config, r) > 0 for r in own),
                    "worse": sum(beyond_chance(config, r) < 0 for r in own),
                }
            )
    return found


def _arm_rows(arms: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "module": row["module"],
            "search": row["search"],
            "mean difference": f"{row['mean']:+.3f} "
            + span(row["low"], row["high"], "+"),
            "tasks": len(row["tasks"]),
            "better, worse (Holm)": f"{row['better']}, {row['worse']}",
        }
        for row in arms
    ]


def _left_out_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "task": row["left_out"],
            "clip": f"{row['layer']}:{row['module']}:{row['rate']:g}",
            "gain of the others": f"{row['validation_gain']:+.3f}",
            "before": f"{row['before']:.3f}",
            **_changed(row),
        }
        for row in rows
    ]


def _grid(config: Config, found: dict[str, Any]) -> dict[str, Any]:
    """Mean change of accuracy by module, layer and rate over tasks, and trends."""
    means: dict[str, Any] = {}
    for module in config.modules:
        layers = sorted(map(int, next(iter(found.values()))[module]))
        change = np.array(
            [
                [
                    np.mean(own[module][str(layer)], axis=1) - np.mean(own["unpruned"])
                    for layer in layers
                ]
                for own in found.values()
            ]
        )  # (tasks, layers, rates)
        trend = [
            [float(scipy.stats.kendalltau(layers, rate).statistic) for rate in task.T]
            for task in change
        ]
        means[module] = {
            "layers": layers,
            "change": change.mean(axis=0),
            "by_task": change.mean(axis=(1, 2)),
            "trend": np.nan_to_num(trend).mean(axis=1),
        }
    return means


def _growth(rows: list[dict[str, Any]]) -> dict[str, Any]:
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


def _remark_4(grid: dict[str, Any], updates: dict[str, Any]) -> list[dict[str, Any]]:
    """Within a rate, over layers: change of the update's norm against accuracy."""
    rows = []
    for name, own in updates.items():
        modules = [m for m in grid[name] if m != "unpruned"]
        for module in modules:
            layers = sorted(map(int, own["pruned"]))
            sizes = np.array(
                [np.mean(own["pruned"][str(l)][module], axis=1) for l in layers]
            )
            right = np.array(
                [np.mean(grid[name][module][str(l)], axis=1) for l in layers]
            )
            # The first MLP of a model with parallel blocks sees no demonstrations.
            seen = sizes[:, 0] > 0
            ratio, right = sizes[seen, 1:] / sizes[seen, :1], right[seen]
            taus = [
                float(scipy.stats.kendalltau(a, b).statistic)
                for a, b in zip(ratio.T, right.T, strict=True)
            ]
            rows.append({"task": name, "module": module, "tau": np.nan_to_num(taus)})
    return rows


def _rate_0(updates: dict[str, Any]) -> Check:
    """At rate 0 the update of a pruned layer is that of the layer."""
    wrong = [
        np.ptp([np.asarray(m)[0] for m in own.values()], axis=0).max()
        for task in updates.values()
        for own in task["pruned"].values()
    ]
    return Check("implicit updates at rate 0, largest difference", max(wrong), 0, "<=")
