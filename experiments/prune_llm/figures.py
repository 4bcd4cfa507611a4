"""The pictures of the experiment."""

from typing import Any

import numpy as np

from experiments import condition_numbers
from experiments.condition_numbers.report import figure as condition_figure
from experiments.prune_llm.drawing import (
    AccuracyPanel,
    BeforeAfter,
    accuracy_against_rate,
    algorithm1_gains,
    norms_beside_accuracy,
    search_cost,
)
from experiments.prune_llm.study import Study
from experiments.prune_llm.subject import TaskDraw
from experiments.prune_llm.tables import TestedChoice, panel
from icltheory.plotting import Curve
from icltheory.strict_json import number

THEORY = {
    "update_norm": "norm of the implicit update",
    "G_norm": "norm of G",
    "noise_trace": "trace of the noise",
    "shrunk_bound": "bound, noise shrunk",
    "cosine": "cosine to attention",
}


def draw(
    study: Study, rows: list[TestedChoice], measured: dict[str, Any]
) -> dict[str, Any]:
    """All figures by file name."""
    config, ways = study.config, measured["ways"]
    note = f"bands: {100 * config.level:g} % intervals of the paired difference"
    by_task = {
        f"{task}, {module}": _panel(study, study.main_case(task), module)
        for module in config.modules
        for task in config.tasks
    }
    figures = {
        "figure1_layers.png": accuracy_against_rate(
            by_task,
            f"One module of one layer clipped, {_shots(study)}\n(validation; {note})",
            columns=len(config.tasks) if len(config.tasks) <= 4 else 4,
        ),
        "figure3_condition_numbers.png": condition_figure(
            condition_numbers.Config(config.checkpoint), study.conditions
        ),
        "figure4_algorithm1.png": algorithm1_gains(
            {
                module: {
                    r.case.task: _gain(r, config.level)
                    for r in rows
                    if r.module == module
                }
                for module in config.modules
            },
            f"Layer by condition number (k = {config.top_k}, {config.aggregate}), rate "
            f"by validation, judged on the test set ({100 * config.level:g} % "
            "intervals;\nbeyond chance: exact paired test, Holm over the table)",
        ),
        "search_cost.png": search_cost(
            {
                "one prompt at a time": ways["naive_seconds"],
                "shared prefix and trunk": ways["cached_seconds"],
            },
            f"One search over {len(config.rates)} rates: {ways['task']}, "
            f"{ways['module']}, {ways['examples']} examples",
        ),
    }
    for task in config.tasks:
        cases = [case for case in study.grid_cases if case.task == task]
        if len(cases) > 1:
            by_shots = {
                f"{module}, {case.shots} demonstrations": _panel(study, case, module)
                for module in config.modules
                for case in sorted(cases)
            }
            title = (
                f"{task}: clipping behind fewer demonstrations\n(validation; {note})"
            )
            figures[f"figure2_shots_{task}.png"] = accuracy_against_rate(
                by_shots, title, columns=len(cases)
            )
    if measured["theory"] is not None:
        figures["figure_theory.png"] = _theory(study, measured["theory"])
    return figures


def _shots(study: Study) -> str:
    shots = {study.main_case(task).shots for task in study.config.tasks}
    return f"{' or '.join(map(str, sorted(shots)))} demonstrations"


def _panel(study: Study, case: TaskDraw, module: str) -> AccuracyPanel:
    found = panel(study, case, module)
    shown = _shallow_and_deep(study.layers)
    curves = {}
    for layer in shown:
        place = study.layers.index(layer)
        ends = np.array([cell.interval for cell in found.comparisons[place]])
        ends[0] = 0  # the unpruned model itself
        curves[f"layer {layer}"] = Curve(
            found.accuracy[place], *(found.unpruned + ends).T
        )
    return AccuracyPanel(study.config.rates, curves, found.unpruned, found.majority)


def _shallow_and_deep(layers: tuple[int, ...]) -> tuple[int, ...]:
    """All of a few layers, else the first two and the last two."""
    return layers if len(layers) <= 6 else (*layers[:2], *layers[-2:])


def _theory(study: Study, measured: dict[str, Any]) -> Any:
    """The surrogate's numbers of each layer and rate, beside the accuracy."""
    case, module = TaskDraw(**measured["case"]), measured["module"]
    found = panel(study, case, module)
    rows = {(row["layer"], row["rate"]): row for row in measured["rows"]}
    layers = _shallow_and_deep(study.layers)
    panels = {
        title: {
            f"layer {layer}": Curve(
                [number(rows[layer, rate][name]) for rate in study.config.rates]
            )
            for layer in layers
        }
        for name, title in THEORY.items()
    }
    panels["accuracy on validation"] = {
        f"layer {layer}": Curve(found.accuracy[study.layers.index(layer)])
        for layer in layers
    }
    return norms_beside_accuracy(
        study.config.rates,
        panels,
        f"Linear surrogate of each layer, {case.task}, {module} clipped, "
        f"{case.shots} demonstrations",
        log=[THEORY[name] for name in THEORY if name != "cosine"],
        lines={"accuracy on validation": found.unpruned},
    )


def _gain(row: TestedChoice, level: float) -> BeforeAfter:
    r = row.result
    return BeforeAfter(
        (r.test_before, r.before_interval.low, r.before_interval.high),
        (r.test_after, r.after_interval.low, r.after_interval.high),
        row.verdict(level) not in ("better", "worse"),
        f"layer {r.layer}, rate {r.rate:g}\n{_p(row)}",
        r.majority.share,
    )


def _p(row: TestedChoice) -> str:
    if row.result.rate == 0:
        return "not pruned"
    return f"p = {row.result.p_value:.2g}, Holm {row.holm:.2g}"
