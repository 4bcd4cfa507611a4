"""Builds the tables, checks and findings of a study."""

import dataclasses
from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Report
from experiments.prune_llm.arms import (
    arm_findings,
    arm_means,
    arm_rows,
    arm_table,
    means_table,
)
from experiments.prune_llm.arms import as_numbers as arm_numbers
from experiments.prune_llm.beside import beside_published, beside_table
from experiments.prune_llm.budgets import as_numbers as budget_numbers
from experiments.prune_llm.budgets import (
    budget_findings,
    budget_means,
    budget_rows,
    budget_table,
)
from experiments.prune_llm.figures import draw
from experiments.prune_llm.findings import findings
from experiments.prune_llm.methods import own_layer
from experiments.prune_llm.study import Study
from experiments.prune_llm.tables import (
    TestedChoice,
    algorithm1_rows,
    as_numbers,
    beyond_chance,
    panel,
    races,
    replicates,
    shots_curve,
)
from experiments.prune_llm.theory import within_rates
from icltheory.statistics import compare

# Tolerance for scores of one model by two programs; at rate 0 the weights agree
# exactly.
SCORES_AGREE = 1e-4


def report(study: Study, measured: dict[str, Any]) -> Report:
    """Builds the tables, figures, findings, checks and numbers of a run."""
    config = study.config
    every = algorithm1_rows(study, study.judged_cases)
    main = [case for case in study.judged_cases if case in study.grid_cases]
    rows = algorithm1_rows(study, main)
    repeated = replicates(study, every)
    raced = [found for row in rows if (found := races(study, row)) is not None]
    tables: list[Table | str] = [algorithm1_table(study, rows)]
    if len(every) > len(rows):
        tables.append(_replicates_table(repeated))
    if raced:
        tables.append(_race_table(raced))
    published = beside_published(study, rows)
    tables.append(beside_table(published, config.checkpoint))
    arms = arm_rows(study, main) if config.arms else []
    means = arm_means(study, arm_rows(study, study.judged_cases)) if arms else []
    if arms:
        tables += [arm_table(arms), means_table(means)]
    several = len(own_layer(config.arms)) > 1
    budgets = budget_rows(study, main) if several else []
    over_draws = budget_means(budget_rows(study, study.judged_cases)) if budgets else []
    if over_draws:
        tables.append(budget_table(over_draws))
    theory = measured["theory"]
    numbers = {
        "algorithm1": [as_numbers(row, config.level) for row in rows],
        "all draws and orders": [as_numbers(row, config.level) for row in every],
        "replicates": repeated,
        "races": raced,
        "beside published": [dataclasses.asdict(row) for row in published],
        "grid": {case.task: _grid(study, case.task) for case in main},
        "shots": {
            task: {k: float(v.mean()) for k, v in shots_curve(study, task).items()}
            for task in config.task_names
        },
        "ways": measured["ways"],
        "rate 0": measured["rate_0"],
        "theory": theory,
        "update and accuracy": (
            None if theory is None else within_rates(study, theory)._asdict()
        ),
        "arms": {"rows": [arm_numbers(row) for row in arms], "means": means},
        "budgets": {
            "rows": [budget_numbers(row) for row in budgets],
            "means": over_draws,
        },
        "answers": sum(len(records) for records in study.records),
    }
    return Report(
        numbers,
        checks=_checks(study, measured),
        tables=tables,
        findings=[
            *findings(study, rows, repeated, raced, measured["theory"]),
            *(arm_findings(study, arms, means) if arms else ()),
            *budget_findings(study, budgets),
        ],
        figures=draw(study, rows, measured, arms),
        interval_level=study.config.level,
        axes={
            "grid.*.accuracy.*.*": ["layer", "clipping rate"],
            "replicates.*.rates": ["draw and order"],
        },
    )


def _grid(study: Study, task: str) -> dict[str, Any]:
    """Accuracies (layers, rates) by shots and module, and significant differences."""
    cases = [case for case in study.grid_cases if case.task == task]
    panels = {
        f"{case.shots}": {
            module: _padded(study, panel(study, case, module).accuracy)
            for module in study.config.modules
        }
        for case in cases
    }
    return {
        "layers": list(study.layers),
        "rates": list(study.config.rates),
        "accuracy": panels,
        "majority": panel(study, cases[0], study.config.modules[0]).majority,
        "beyond chance": beyond_chance(study, study.main_case(task)),
    }


def _padded(study: Study, accuracy: np.ndarray) -> list[list[float]]:
    """Pads accuracies with NaN at the largest rates, which leave no rank."""
    more = len(study.config.rates) - accuracy.shape[1]
    return np.pad(accuracy, ((0, 0), (0, more)), constant_values=np.nan).tolist()


def _checks(study: Study, measured: dict[str, Any]) -> list[Check]:
    none, ways = measured["rate_0"], measured["ways"]
    checks = [
        Check("rate 0: changed weights", none["changed_weights"], 0, "<="),
    ]
    if study.config.dtype == "float32":  # half precision has rounding errors
        for name, found in (
            ("rate 0 against unpruned", none),
            ("cached against", ways),
        ):
            name = name if found is none else f"{name} plain, {ways['answers']} answers"
            checks += [
                Check(
                    f"{name}: other predictions",
                    found["different_predictions"],
                    0,
                    "<=",
                ),
                Check(
                    f"{name}: largest change of a score",
                    found["largest_difference"],
                    0,
                    "<=",
                    SCORES_AGREE,
                ),
            ]
    return [*checks, *_learns_in_context(study)]


def _learns_in_context(study: Study) -> list[Check]:
    """Checks that demonstrations raise the accuracy on some task."""
    curves = {task: shots_curve(study, task) for task in study.config.task_names}
    gains = {}
    for task, curve in curves.items():
        few, many = min(curve), max(curve)
        if few < many:
            level = 1 - (1 - study.config.level) / len(curves)
            found = compare(curve[few], curve[many], level=level)
            gains[f"{many} demonstrations over {few}, {task}"] = found.interval.low
    if not gains:
        return []
    best = max(gains, key=lambda name: gains[name])
    name = f"least gain of {best}, the most of {len(gains)} (Bonferroni), is above 0"
    return [Check(name, 0.0, gains[best], "<=")]


def algorithm1_table(study: Study, rows: list[TestedChoice]) -> Table:
    """Builds the table of Algorithm 1, one row per task and module."""
    level = study.config.level
    table = Table(
        title="Algorithm 1: chosen on validation, judged once on the test set "
        f"({100 * level:g} % score interval of the paired difference and its p;\n"
        "Holm: p of the exact test, which decides, corrected over the table)"
    )
    for name in ("task", "module", "layer", "rate", "validation", "test"):
        table.add_column(name)
    for name in ("difference", "p", "Holm", "could be chance?", "majority"):
        table.add_column(name)
    for row in rows:
        r, c = row.result, row.result.comparison
        ends = f"\\[{c.interval.low:+.3f}, {c.interval.high:+.3f}]"
        tested, left = r.rate > 0, study.left_out(row.module)
        table.add_row(
            row.case.task,
            row.module,
            str(r.layer),
            f"{r.rate:g}" + (f" ({left})" if left else ""),
            f"{r.unpruned_score:.4f} to {r.validation_score:.4f}",
            f"{r.test_before:.4f} to {r.test_after:.4f}",
            f"{c.difference:+.4f} {ends}" if tested else "-",
            f"{c.score_p_value:.2g}" if tested else "-",
            f"{row.holm:.2g}" if tested else "-",
            {"could be chance": "yes", "not pruned": "not pruned"}.get(
                verdict := row.verdict(level), f"no: {verdict}"
            ),
            f"{r.majority.share:.4f}",
        )
    return table


def _replicates_table(repeated: list[dict[str, Any]]) -> Table:
    table = Table(
        title=f"Over {repeated[0]['num']} draws and orders of the demonstrations: test "
        "accuracy, mean +- standard error"
    )
    for name in ("task", "module", "rates chosen", "before", "after", "difference"):
        table.add_column(name)
    for r in repeated:
        cells = [
            f"{r[name]:.4f} +- {r[f'{name} standard error']:.4f}"
            for name in ("before", "after", "difference")
        ]
        rates = ", ".join(f"{rate:g}" for rate in r["rates"])
        table.add_row(r["task"], r["module"], rates, *cells)
    return table


def _race_table(raced: list[dict[str, Any]]) -> Table:
    table = Table(title="Racing over the rates beside the full grid, mean over orders")
    for name in ("task", "module", "full grid", "race", "saved", "same choice"):
        table.add_column(name)
    for r in raced:
        table.add_row(
            r["task"],
            r["module"],
            f"{r['full_evaluations']:,}",
            f"{r['evaluations']:,.0f}",
            f"{r['saved']:.1%} +- {r['saved standard error']:.1%}",
            f"{r['same choice']} of {r['races']}",
        )
    return table
