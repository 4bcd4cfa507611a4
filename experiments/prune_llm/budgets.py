"""Compares methods at equal numbers of parameters, on the validation examples.

Nothing is chosen here: each rate is a budget, at which all methods prune the same layer
to as many parameters. Algorithm 1's choices are judged on the test set in ``arms``.
"""

import dataclasses
from typing import Any

import numpy as np
from rich.table import Table

from experiments.prune_llm.arms import arm_layer
from experiments.prune_llm.methods import CONDITION, NAMES, own_layer
from experiments.prune_llm.study import Study
from experiments.prune_llm.subject import TaskDraw
from icltheory.statistics import Comparison, Estimate, adjust_holm, compare


@dataclasses.dataclass(frozen=True, eq=False)
class BudgetRow:
    """Result of one method at one rate on a task.

    Attributes:
        arm: The arm whose method it is.
        case: The task and its demonstrations.
        module: The pruned module.
        rate: The clipping rate.
        kept: Parameters that it leaves of the module, as a share.
        change: The pruned model against the unpruned one.
        against: The method against plain SVD; ``None`` for that itself.
        against_holm: p-value of that after Holm's correction over all rows.
    """

    arm: str
    case: TaskDraw
    module: str
    rate: float
    kept: float
    change: Comparison
    against: Comparison | None
    against_holm: float = 1.0


def budget_rows(study: Study, cases: list[TaskDraw]) -> list[BudgetRow]:
    """Returns rows for every method and rate; none if a race left answers out."""
    rows = []
    for case in cases:
        for module in study.config.modules:
            rows += _rows(study, case, module)
    tested = [row.against.p_value for row in rows if row.against]
    holm = iter(adjust_holm(tested) if tested else [])
    return [
        dataclasses.replace(row, against_holm=float(next(holm))) if row.against else row
        for row in rows
    ]


def _rows(study: Study, case: TaskDraw, module: str) -> list[BudgetRow]:
    rates, level = study.rates(module), study.config.level
    layer = arm_layer(study, CONDITION, case, module)
    right = {}
    for arm in own_layer(study.config.arms):
        answers = study.answers_of(arm, case)
        if not answers.known("validation", layer, module, rates).all():
            return []
        right[arm] = answers.correct("validation", layer, module, rates)
    rows = []
    for place, rate in enumerate(rates[1:], start=1):
        for arm, own in right.items():
            plain = right[CONDITION][place]
            against = arm != CONDITION and compare(plain, own[place], level=level)
            rows.append(
                BudgetRow(
                    arm,
                    case,
                    module,
                    rate,
                    study.kept_share(layer, module, rate),
                    compare(own[0], own[place], level=level),
                    against or None,
                )
            )
    return rows


def budget_means(rows: list[BudgetRow]) -> list[dict[str, Any]]:
    """Mean change of accuracy by module, rate and arm, over draws, then over tasks.

    The standard error is that over tasks.
    """
    by_cell: dict[tuple[str, float, str], dict[str, list[BudgetRow]]] = {}
    for row in rows:
        cell = by_cell.setdefault((row.module, row.rate, row.arm), {})
        cell.setdefault(row.case.task, []).append(row)
    found = []
    for (module, rate, arm), tasks in by_cell.items():
        changes = [
            float(np.mean([row.change.difference for row in some]))
            for some in tasks.values()
        ]
        several = len(changes) > 1
        found.append(
            {
                "module": module,
                "rate": rate,
                "arm": arm,
                "kept": next(iter(tasks.values()))[0].kept,
                "change": float(np.mean(changes)),
                "standard error": (
                    float(Estimate.of(changes).standard_error) if several else np.nan
                ),
            }
        )
    return found


def budget_table(means: list[dict[str, Any]]) -> Table:
    """Builds the table with a row per module and budget, and a column per method."""
    arms = list(dict.fromkeys(m["arm"] for m in means))
    table = Table(
        title="Methods at equal parameters: change of the validation accuracy of the "
        "layer of Algorithm 1 at every rate,\nin points, mean over draws and tasks "
        "(+- standard error over tasks)"
    )
    for name in ("module", "rate", "kept", *(NAMES[arm] for arm in arms)):
        table.add_column(name)
    cells: dict[tuple[str, float, float], dict[str, str]] = {}
    for m in means:
        text = f"{100 * m['change']:+.1f}"
        if not np.isnan(m["standard error"]):
            text += f" +- {100 * m['standard error']:.1f}"
        cells.setdefault((m["module"], m["rate"], m["kept"]), {})[m["arm"]] = text
    for (module, rate, kept), row in cells.items():
        texts = [row.get(arm, "-") for arm in arms]
        table.add_row(module, f"{rate:g}", f"{kept:.0%}", *texts)
    return table


def budget_findings(study: Study, rows: list[BudgetRow]) -> list[str]:
    """Counts how often each method beats plain SVD with as many parameters."""
    sure, told = 1 - study.config.level, []
    family = sum(row.against is not None for row in rows)
    for arm in own_layer(study.config.arms)[1:]:
        own = [row for row in rows if row.arm == arm]
        tested = [(row.against, row.against_holm) for row in own if row.against]
        if not tested:
            continue
        beyond = [found.difference for found, holm in tested if holm <= sure]
        mean = np.mean([found.difference for found, _ in tested])
        told.append(
            f"At equal parameters {NAMES[arm]} changes the validation accuracy by "
            f"{mean:+.4f} against plain SVD, mean over {len(tested)} (task, module, "
            f"rate) of the first draw; {sum(d > 0 for d in beyond)} are better and "
            f"{sum(d < 0 for d in beyond)} worse after Holm over all {family}."
        )
    return told


def as_numbers(row: BudgetRow) -> dict[str, Any]:
    """Converts a row for ``result.json``."""
    against = row.against
    return {
        **row.case._asdict(),
        "arm": row.arm,
        "module": row.module,
        "rate": row.rate,
        "kept": row.kept,
        "change": row.change.difference,
        "interval": list(row.change.interval),
        "against": None if against is None else against.difference,
        "against interval": None if against is None else list(against.interval),
        "against_holm": row.against_holm,
    }
