"""The figures of the experiment."""

from typing import Any

import numpy as np

from experiments import condition_numbers
from experiments._frame.looks import labels_are_arbitrary, plain_words
from experiments.condition_numbers.report import figure as condition_figure
from experiments.prune_llm.arms import ArmRow
from experiments.prune_llm.drawing import (
    ChangeCurve,
    ChangePanel,
    ChoiceChange,
    algorithm1_changes,
    change_against_rate,
    norms_beside_accuracy,
    search_cost,
)
from experiments.prune_llm.methods import NAMES
from experiments.prune_llm.study import Study
from experiments.prune_llm.subject import TaskDraw
from experiments.prune_llm.tables import TestedChoice, panel, tested_cells
from icltheory.bridge.layer_search import Algorithm1Result
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
    study: Study,
    rows: list[TestedChoice],
    measured: dict[str, Any],
    arms: list[ArmRow],
) -> dict[str, Any]:
    """Draws all figures by file name."""
    config, ways = study.config, measured["ways"]
    percent = f"{100 * config.level:g} %"
    note = f"validation; bars: paired {percent} intervals; Holm over a task's cells"
    by_task = {}
    for module in config.modules:
        for task in config.task_names:
            case = study.main_case(task)
            by_task |= _panels(study, case, module, plain_words(task))
    figures = {
        "figure1_layers.png": change_against_rate(
            by_task,
            f"What clipping one module of one layer changes, {_shots(study)}\n({note})",
            columns=min(len(config.task_names), 4),
        ),
        "figure3_condition_numbers.png": condition_figure(
            condition_numbers.Config(config.checkpoint), study.conditions
        ),
        "figure4_algorithm1.png": algorithm1_changes(
            {
                plain_words(module): {
                    _row_name(r): _tested(r, config.level)
                    for r in rows
                    if r.module == module
                }
                for module in config.modules
            },
            f"What Algorithm 1 changes on the test set ({percent} intervals; filled: "
            "beyond chance after Holm)",
        ),
        "search_cost.png": search_cost(
            {
                "one prompt at a time": ways["naive_seconds"],
                "shared prefix and trunk": ways["cached_seconds"],
            },
            f"One search over {len(study.rates(ways['module']))} rates: "
            f"{plain_words(ways['task'])}, {plain_words(ways['module'])}, "
            f"{ways['examples']} examples",
        ),
    }
    for task in config.task_names:
        if (figure := _shots_figure(study, task, note)) is not None:
            figures[f"figure2_shots_{task}.png"] = figure
    if arms:
        figures["figure_arms.png"] = _arms(arms, config.level)
    if measured["theory"] is not None:
        figures["figure_theory.png"] = _theory(study, measured["theory"])
    return figures


def _arms(arms: list[ArmRow], level: float) -> Any:
    """Draws the gains of all arms on the test set, one panel per arm."""
    panels: dict[str, dict[str, ChoiceChange]] = {}
    for row in arms:
        name = f"{plain_words(row.case.task)},\n{plain_words(row.module)}"
        panel_of_arm = panels.setdefault(NAMES[row.arm], {})
        panel_of_arm[name] = _change_of(row.result, row.holm, level)
    return algorithm1_changes(
        panels,
        "What the choice of each arm changes on the test set "
        f"({100 * level:g} % intervals; filled: beyond chance after Holm)",
    )


def _shots(study: Study) -> str:
    shots = {study.main_case(task).shots for task in study.config.task_names}
    return f"{' or '.join(map(str, sorted(shots)))} demonstrations"


def _shots_figure(study: Study, task: str, note: str) -> Any:
    """Draws the effect of clipping for each number of demonstrations, if several.

    Without demonstrations the answers to arbitrary labels show only which words a model
    prefers, and clipping changes that preference: such a panel would look like a gain
    or a loss, and is left out.
    """
    cases = sorted(case for case in study.grid_cases if case.task == task)
    if len(cases) < 2:
        return None
    title = f"{plain_words(task)}: what clipping changes behind fewer demonstrations"
    if labels_are_arbitrary(task) and cases[0].shots == 0:
        cases = cases[1:]
        note += ";\n0 demonstrations are left out, they leave only a prior over labels"
    panels = {}
    for module in study.config.modules:
        for case in cases:
            panels |= _panels(study, case, module, f"{case.shots} demonstrations")
    return change_against_rate(panels, f"{title}\n({note})", columns=len(cases))


def _panels(
    study: Study, case: TaskDraw, module: str, name: str
) -> dict[str, ChangePanel]:
    """Returns the panel of a case and a module, by its title."""
    found, tested = panel(study, case, module), tested_cells(study, case)
    curves = {}
    for layer in _shallow_and_deep(study.layers):
        comparisons = found.comparisons[study.layers.index(layer)]
        ends = np.array([cell.interval for cell in comparisons])
        ends[0] = 0  # the unpruned model compared with itself
        sure = [
            rate > 0 and tested[module, layer, rate][1] <= 1 - study.config.level
            for rate in study.rates(module)
        ]
        change = [cell.difference for cell in comparisons]
        curves[f"layer {layer}"] = ChangeCurve(change, ends[:, 0], ends[:, 1], sure)
    title = f"{name}\n{plain_words(module)} (unpruned {found.unpruned:.3f})"
    return {title: ChangePanel(study.rates(module), curves)}


def _shallow_and_deep(layers: tuple[int, ...]) -> tuple[int, ...]:
    """Returns all layers if there are few, else the first two and the last two."""
    return layers if len(layers) <= 6 else (*layers[:2], *layers[-2:])


def _theory(study: Study, measured: dict[str, Any]) -> Any:
    """Draws the surrogate's numbers and the accuracy of each layer and rate."""
    case, module = TaskDraw(**measured["case"]), measured["module"]
    found = panel(study, case, module)
    rows = {(row["layer"], row["rate"]): row for row in measured["rows"]}
    layers = _shallow_and_deep(study.layers)
    panels = {
        title: {
            f"layer {layer}": Curve(
                [number(rows[layer, rate][name]) for rate in study.rates(module)]
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
        study.rates(module),
        panels,
        f"Linear surrogate of each layer: {plain_words(case.task)}, "
        f"{plain_words(module)} clipped, "
        f"{case.shots} demonstrations",
        log=[THEORY[name] for name in THEORY if name != "cosine"],
        lines={"accuracy on validation": found.unpruned},
    )


def _row_name(row: TestedChoice) -> str:
    return f"{plain_words(row.case.task)}\n(unpruned {row.result.test_before:.3f})"


def _tested(row: TestedChoice, level: float) -> ChoiceChange:
    return _change_of(row.result, row.holm, level)


def _change_of(r: Algorithm1Result, holm: float, level: float) -> ChoiceChange:
    if r.rate == 0:
        return ChoiceChange(None, note="not pruned")
    found = r.comparison
    return ChoiceChange(
        (found.difference, *found.interval),
        holm <= 1 - level,
        f"layer {r.layer}, rate {r.rate:g}\np = {found.score_p_value:.2g}, "
        f"Holm {holm:.2g}",
    )
