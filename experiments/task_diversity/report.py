"""Builds the table, figures and checks of a run."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Report, largest
from experiments.task_diversity.config import Config
from experiments.task_diversity.figures import draw_distances, draw_errors, draw_phases
from experiments.task_diversity.measure import DMMSE, MODEL, NEW, POOL, RIDGE, Scores
from experiments.task_diversity.summary import (
    by_size,
    closeness_over_training,
    crossings,
    distance,
    estimates,
    pythagoras,
)
from experiments.task_diversity.theory import Theory
from experiments.task_diversity.train import CLOSENESS
from icltheory.statistics import Estimate

Tables = dict[str, dict[str, np.ndarray]]
_SIGMAS = 5.0  # allowed z-score of a difference whose expectation is 0


def checks(
    config: Config, tables: Tables, measured: list[dict[str, Scores]], lines: Theory
) -> list[Check]:
    """Checks the theoretical lines, and the transformer against Raventos et al."""
    return [
        *_lines(config, lines),
        *_identity(config, measured),
        *_transformer(tables, lines),
    ]


def _lines(config: Config, lines: Theory) -> list[Check]:
    gain = lines.ridge_minus_dmmse
    worst = largest(-g.mean - 3 * g.standard_error for g in gain[POOL])
    found = [
        Check("dMMSE minus ridge on the pool, less 3 s.e., largest", worst, 0.0, "<=")
    ]
    sampled = lines.ridge_sampled[NEW][-1]
    found.append(
        Check(
            "ridge on new tasks, sampled against averaged exactly",
            sampled.mean,
            lines.ridge.mean,
            "within",
            _SIGMAS
            * float(np.hypot(sampled.standard_error, lines.ridge.standard_error)),
        )
    )
    if config.finite_sizes[0] == 1:
        # The error is |w - w_1|^2 / d at every k, since the single task of the pool is
        # predicted.
        one = lines.dmmse[NEW][0]
        name = "dMMSE of one task on new tasks"
        found.append(Check(name, one.mean, 2.0, "within", _SIGMAS * one.standard_error))
    small = gain[NEW][0]
    name = "ridge minus dMMSE of the smallest pool on new tasks"
    found.append(Check(name, small.mean, 0.0, "<=", -3 * small.standard_error))
    return found


def _identity(config: Config, measured: list[dict[str, Scores]]) -> list[Check]:
    return [
        Check(
            f"error minus (Bayes error + distance) on {source} tasks, largest |z|",
            pythagoras(config, measured, source),
            _SIGMAS,
            "<=",
        )
        for source in (POOL, NEW)
    ]


def _transformer(tables: Tables, lines: Theory) -> list[Check]:
    pool, new = tables[POOL], tables[NEW]
    ratios = {
        source: (distance(table, RIDGE) / distance(table, DMMSE)).mean(axis=1)
        for source, table in tables.items()
    }
    gain = (new[MODEL] - new[DMMSE])[:-1]
    best = min((Estimate.of(row) for row in gain), key=lambda e: e.mean)
    return [
        Check(
            "transformer of the smallest pool on its tasks, against a tenth of ridge",
            float(pool[MODEL][0].mean()),
            lines.ridge.mean / 10,
            "<=",
        ),
        Check(
            "transformer without a pool, against the best layer of linear attention",
            float(new[MODEL][-1].mean()),
            lines.one_layer,
            "<=",
        ),
        Check(
            "smallest pool: distance to dMMSE / distance to ridge, on its tasks",
            float(1 / ratios[POOL][0]),
            1.0,
            "<=",
        ),
        Check(
            "largest pool: distance to ridge / distance to dMMSE, on new tasks",
            float(ratios[NEW][-2]),
            1.0,
            "<=",
        ),
        Check(
            "transformer minus dMMSE of its pool on new tasks, at the best size",
            best.mean,
            0.0,
            "<=",
            -3 * best.standard_error,
        ),
    ]


def comparison_table(
    config: Config, tables: Tables, lines: Theory, source: str
) -> Table:
    """Builds the table of errors and distances by pool size for one prompt source."""
    of = tables[source]
    table = Table(
        title=f"{source} tasks: squared errors and distances / d, mean over k (s.e.); "
        f"ridge {lines.ridge.mean:.4f}"
    )
    heads = ("M", "transformer", "dMMSE, same pools", "dMMSE, theory")
    for head in (*heads, "to dMMSE", "to ridge"):
        table.add_column(head, justify="right", no_wrap=True)
    measured = (of[MODEL], of[DMMSE], distance(of, DMMSE), distance(of, RIDGE))
    columns = [estimates(values) for values in measured]
    columns.insert(2, [*lines.dmmse[source], lines.ridge])
    for size, row in zip(config.pool_sizes, zip(*columns, strict=True), strict=True):
        cells = [f"{value.mean:.4f} ({value.standard_error:.4f})" for value in row]
        table.add_row(f"{size:,}" if size else "no pool", *cells)
    return table


def report(
    config: Config,
    measured: list[dict[str, Scores]],
    lines: Theory,
    records: Sequence[dict[str, Any]],
) -> Report:
    """Builds the tables, figures, checks and numbers of a run."""
    tables = by_size(config, measured)
    steps, over_training = closeness_over_training(config, records, tables[NEW])
    crossed = {source: crossings(config, table) for source, table in tables.items()}
    marks = {s: _geometric_mean(sizes) for s, sizes in crossed.items()}
    shown: list[Table | str] = []
    for source, sizes in crossed.items():
        shown.append(comparison_table(config, tables, lines, source))
        crossing = ", ".join(f"{size:.0f}" for size in sizes)
        shown.append(f"closer to ridge on {source} tasks from M = {crossing} (by seed)")
    numbers = {
        "pool_sizes": list(config.pool_sizes),
        "transformer": {
            source: {name: values.tolist() for name, values in table.items()}
            for source, table in tables.items()
        },
        "over_training": {"steps": steps, CLOSENESS: over_training.tolist()},
        "theory": {
            "ridge": list(map(float, lines.ridge)),
            "one_layer": lines.one_layer,
            "dmmse": {
                source: [list(map(float, e)) for e in values]
                for source, values in lines.dmmse.items()
            },
            "ridge_minus_dmmse": {
                source: [list(map(float, e)) for e in values]
                for source, values in lines.ridge_minus_dmmse.items()
            },
        },
        "crossings": {
            source: [float(size) if np.isfinite(size) else None for size in sizes]
            for source, sizes in crossed.items()
        },
    }
    return Report(
        numbers,
        checks=checks(config, tables, measured, lines),
        tables=shown,
        figures={
            "errors.png": draw_errors(config, tables, lines),
            "distances.png": draw_distances(config, tables, lines, marks),
            "phases.png": draw_phases(config, steps, over_training),
        },
        axes={
            "transformer.*.*": ["pool size", "seed"],
            f"over_training.{CLOSENESS}": ["pool size", "training step"],
            "theory.*.*": ["pool size", "mean and standard error"],
            "theory.ridge": ["mean and standard error"],
            "crossings.*": ["seed"],
        },
    )


def _geometric_mean(sizes: np.ndarray) -> float | None:
    known = sizes[np.isfinite(sizes)]
    return float(np.exp(np.log(known).mean())) if len(known) else None
