"""Computes tables from answers: grid, Algorithm 1, shots, demonstrations, races."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from experiments.prune_llm.study import Study
from experiments.prune_llm.subject import TaskDraw
from icltheory.bridge import racing
from icltheory.bridge.layer_search import Algorithm1Result, read_algorithm1
from icltheory.statistics import (
    Comparison,
    Estimate,
    adjust_holm,
    compare,
    majority_baseline,
)

RACES = 20


@dataclasses.dataclass(frozen=True, eq=False)
class TestedChoice:
    """A row of the Algorithm 1 table.

    Attributes:
        case: The task and its demonstrations.
        module: The pruned module.
        result: What Algorithm 1 chose and what it was worth.
        holm: p-value after Holm's correction over the table.
    """

    case: TaskDraw
    module: str
    result: Algorithm1Result
    holm: float

    def verdict(self, level: float) -> str:
        """Interpretation of the test after Holm's correction over the table."""
        if self.result.rate == 0:
            return "not pruned"
        if self.holm > 1 - level:
            return "could be chance"
        better = self.result.comparison.difference > 0
        return "better" if better else "worse"


class Panel(NamedTuple):
    """Accuracies of the grid for one case and module.

    Attributes:
        accuracy: Accuracy on validation, (layers, rates), at the module's own rates.
        comparisons: Each cell against the unpruned model.
        unpruned: Accuracy of the unpruned model.
        majority: Share of the commonest class.
    """

    accuracy: np.ndarray
    comparisons: list[list[Comparison]]
    unpruned: float
    majority: float


def algorithm1_rows(study: Study, cases: list[TaskDraw]) -> list[TestedChoice]:
    """Runs Algorithm 1 on each case and module, with Holm's correction over all."""
    config = study.config
    found: list[tuple[TaskDraw, str, Algorithm1Result]] = []
    for case in cases:
        for module in config.modules:
            layer, choice = study.choice(module)
            result = read_algorithm1(
                study.answers[case],
                layer,
                module,
                study.rates(module),
                layers=choice,
                race=config.race,
                seed=config.seed,
                level=config.level,
            )
            found.append((case, module, result))
    # An unpruned model is compared with itself: there is nothing to test.
    tested = [r.rate > 0 for _, _, r in found]
    holm = np.ones(len(found))
    if any(tested):
        p = np.array([result.p_value for _, _, result in found])
        holm[tested] = adjust_holm(p[tested])
    return [
        TestedChoice(case, module, result, float(p))
        for (case, module, result), p in zip(found, holm, strict=True)
    ]


def panel(study: Study, case: TaskDraw, module: str) -> Panel:
    """Returns the accuracies of the grid for a case and module."""
    config, answers = study.config, study.answers[case]
    cells, accuracy = [], []
    for layer in study.layers:
        right = answers.correct("validation", layer, module, study.rates(module))
        cells.append([compare(right[0], row, level=config.level) for row in right])
        accuracy.append([answers.accuracy(row) for row in right])
    return Panel(
        np.array(accuracy),
        cells,
        accuracy[0][0],
        majority_baseline(answers.labels("validation"), answers.facts.labels).share,
    )


def tested_cells(
    study: Study, case: TaskDraw
) -> dict[tuple[str, int, float], tuple[Comparison, float]]:
    """Compares every cell of a case's grid with the unpruned model.

    The p-values are after Holm's correction over all cells.
    """
    found = {
        (module, layer, rate): cell
        for module in study.config.modules
        for layer, cells in zip(
            study.layers, panel(study, case, module).comparisons, strict=True
        )
        for rate, cell in list(zip(study.rates(module), cells, strict=True))[1:]
    }
    if not found:
        return {}
    holm = adjust_holm([cell.p_value for cell in found.values()])
    return {
        place: (cell, float(p))
        for (place, cell), p in zip(found.items(), holm, strict=True)
    }


def beyond_chance(study: Study, case: TaskDraw) -> dict[str, Any]:
    """Counts the cells of a case's grid with a significant difference after Holm."""
    found = tested_cells(study, case)
    if not found:
        return {"cells": 0, "better": 0, "worse": 0, "best": None}
    gains = np.array([cell.difference for cell, _ in found.values()])
    holm = np.array([p for _, p in found.values()])
    sure = holm <= 1 - study.config.level
    module, layer, rate = list(found)[int(np.argmax(gains))]
    best, p = found[module, layer, rate]
    return {
        "cells": len(found),
        "better": int(np.sum(sure & (gains > 0))),
        "worse": int(np.sum(sure & (gains < 0))),
        "best": {
            "module": module,
            "layer": layer,
            "rate": rate,
            "difference": best.difference,
            "holm": p,
        },
    }


def shots_curve(study: Study, task: str) -> dict[int, np.ndarray]:
    """Which validation answers of the unpruned model are right, by number of shots."""
    module = study.config.modules[0]
    return {
        case.shots: study.answers[case].correct(
            "validation", study.layers[0], module, study.config.rates[:1]
        )[0]
        for case in sorted(study.grid_cases)
        if case.task == task
    }


def replicates(study: Study, rows: list[TestedChoice]) -> list[dict[str, Any]]:
    """Means over draws and orders of the demonstrations, for each task and module."""
    found = []
    for task in study.config.task_names:
        for module in study.config.modules:
            own = [r for r in rows if r.case.task == task and r.module == module]
            values = {
                "before": [r.result.test_before for r in own],
                "after": [r.result.test_after for r in own],
                "difference": [r.result.comparison.difference for r in own],
            }
            summary = {name: Estimate.of(v) for name, v in values.items()}
            found.append(
                {
                    "task": task,
                    "module": module,
                    "num": len(own),
                    "rates": [r.result.rate for r in own],
                }
                | {name: float(s.mean) for name, s in summary.items()}
                | {
                    f"{name} standard error": float(s.standard_error)
                    for name, s in summary.items()
                }
            )
    return found


def races(study: Study, row: TestedChoice) -> dict[str, Any] | None:
    """Simulates races on the answers of the full grid, in several example orders.

    ``None`` where a race was the search, and left no full grid to race over.
    """
    arms = study.rates(row.module)
    layer = row.result.layer
    answers = study.answers[row.case]
    if not answers.known("validation", layer, row.module, arms).all():
        return None
    right = answers.correct("validation", layer, row.module, arms)
    whole = racing.full_grid(_answers(right), *right.shape).winner
    raced = [
        racing.race(_answers(right), *right.shape, seed=study.config.seed + i)
        for i in range(RACES)
    ]
    saved = Estimate.of([r.saved for r in raced])
    return {
        "task": row.case.task,
        "module": row.module,
        "races": RACES,
        "evaluations": float(np.mean([r.evaluations for r in raced])),
        "full_evaluations": raced[0].full_evaluations,
        "saved": float(saved.mean),
        "saved standard error": float(saved.standard_error),
        "same choice": sum(r.winner == whole for r in raced),
    }


def _answers(right: np.ndarray):
    return lambda arms, examples: right[np.ix_(arms, examples)]


def as_numbers(row: TestedChoice, level: float) -> dict[str, Any]:
    """Converts a row for ``result.json``."""
    result = row.result
    selection = None if result.selection is None else result.selection._asdict()
    return {
        **row.case._asdict(),
        "module": row.module,
        "layer": result.layer,
        "layers": None if result.layers is None else list(result.layers.layers),
        "rate": result.rate,
        "rates": list(result.rates),
        "validation_before": result.unpruned_score,
        "validation_after": result.validation_score,
        "validation_scores": list(result.validation_scores),
        "selection": selection,
        "test_before": result.test_before,
        "test_after": result.test_after,
        "comparison": dataclasses.asdict(result.comparison),
        "p_value": result.p_value,
        "holm": row.holm,
        "verdict": row.verdict(level),
        "majority": result.majority.share,
        "evaluations": result.evaluations,
        "full_evaluations": result.full_evaluations,
    }
