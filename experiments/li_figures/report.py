"""Builds the tables, claims, checks and numbers of a run."""

from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Report
from experiments.li_figures.claims import claims
from experiments.li_figures.config import Config
from experiments.li_figures.figures import figures
from experiments.li_figures.layers import LayerRun
from experiments.li_figures.levels import Level
from experiments.li_figures.limits import nearest_neighbour_error
from experiments.li_figures.one_layer import Trained
from experiments.li_figures.published import (
    LENGTHS_19,
    MASS,
    NEIGHBOUR_LENGTHS,
    NEIGHBOURS,
    NORMS,
    RANGES,
    TURNS,
)
from experiments.li_figures.stops import (
    LayerStop,
    Stop,
    nearest_layers,
    nearest_stops,
    worst_relations,
)

_SHOWN = ("query", "component", "feature", "label", "size", "attention")


def report(
    config: Config, fits: list[Level], single: list[Trained], deep: list[LayerRun]
) -> Report:
    """Builds the tables, figures, claims, checks and numbers of a run."""
    stops, stacks = nearest_stops(single), nearest_layers(deep)
    return Report(
        {
            "levels": {level.name: _level(level) for level in fits},
            "one layer": [_training(one) for one in single],
            "three layers": [_layers(run) for run in deep],
            "precision": "float32",
        },
        checks=_checks(config, single),
        tables=[
            _level_table(fits),
            _stop_table(stops),
            _layer_table(stacks),
            _neighbour_table(),
        ],
        claims=claims(config, fits, single, stops, stacks),
        claims_title="the figures whose settings are not published",
        figures=figures(fits, single, stops),
        axes={
            "one layer.*.probes.*": [
                "gain and step size",
                "training step",
            ],
        },
    )


def _checks(config: Config, single: list[Trained]) -> list[Check]:
    """Checks relations that hold for every setting at every snapshot."""
    worst = worst_relations(config.one_layer, single)
    return [
        # The tolerance allows for float32 rounding of angles near 0.
        Check(
            "label parts: largest b sin(angle) / (delta |w|)",
            worst["angle"],
            1.0,
            "<=",
            0.01,
        ),
        # The drift is of second order in the step size.
        Check(
            "W_V W_V' - W_O' W_O: largest change over W_O' W_O",
            worst["drift"],
            0.1,
            "<=",
        ),
        Check(
            "rows of W_O: largest relative distance from the norm that the parts imply",
            worst["size"],
            0.05,
            "<=",
        ),
    ]


def _rounded(values: Any) -> list:
    """Converts an array to lists of rounded numbers; ``None`` where it diverged."""
    array = np.asarray(values, float)
    if array.ndim:
        return [_rounded(row) for row in array]
    return round(float(array), 6) if np.isfinite(array) else None  # type: ignore


def _level(level: Level) -> dict[str, Any]:
    return {
        "lengths": [[LENGTHS_19[i] for i in curve.places] for curve in level.curves],
        "curves": list(level.labels),
        "tasks": [task._asdict() | {"tau": task.tau} for task in level.fresh.tasks],
        "errors": [_rounded(errors) for errors in level.fresh.errors],
        "published": [_rounded(curve.values) for curve in level.curves],
        "typical factor": level.fresh.typical,
        "largest factor": level.fresh.largest,
        "typical factor in the search": level.searched.typical,
    }


def _training(one: Trained) -> dict[str, Any]:
    return {
        "shifts": list(one.shifts),
        "gain and step size": [list(pair) for pair in one.settings],
        "steps": one.steps,
        "probes": {
            name: _rounded(values) for name, values in one.probes._asdict().items()
        },
    }


def _layers(run: LayerRun) -> dict[str, Any]:
    arrays = ("norm", "angle", "attention", "hinge")
    return {
        "rule": run.rule,
        "step size": run.step_size,
        "scale": run.scale,
        "steps": run.steps,
        **{name: _rounded(getattr(run, name)) for name in arrays},
    }


def _level_table(fits: list[Level]) -> Table:
    table = Table(
        title="levels of Figures 17 to 19: nearest tasks, and ratios to the published "
        "errors on fresh prompts"
    )
    for head in ("figure", "tasks", "typical factor", "largest factor"):
        table.add_column(head)
    for level in fits:
        texts = dict.fromkeys(str(task) for task in level.fresh.tasks)
        if level.name.startswith("Figure 17"):
            texts = dict.fromkeys(text.rpartition(", ")[0] for text in texts)
        factors = level.fresh.typical, level.fresh.largest
        table.add_row(level.name, "; ".join(texts), *(f"{f:.2f}" for f in factors))
    return table


def _stop_table(stops: list[Stop]) -> Table:
    table = Table(
        title="one layer: the stop of each training that is nearest to Figures 8, 10, "
        "11 and 14"
    )
    heads = ("tasks", "m |a|", "step size", "step", "|W_Q p|", "along the pattern")
    for head in (*heads, "feature", "label", "row of W_O", "attention"):
        table.add_column(head)
    for head in ("feature angle", "label angle", "hinge", "0-1", "small first"):
        table.add_column(head)
    table.add_column("random")
    table.add_column("factor")
    wanted = [NORMS[name] for name in _SHOWN[:4]]
    wanted += [float(np.mean(RANGES["size"])), MASS]
    cells = [f"{value:.3g}" for value in wanted]
    turns = [f"{TURNS[name]:g}" for name in ("feature", "label")]
    table.add_row("published", "", "", "", *cells, *turns, "", "", "", "", "")
    for stop in stops:
        v = stop.values
        table.add_row(
            f"{6 if len(stop.shifts) == 1 else 6 * len(stop.shifts)}",
            f"{stop.gain:g}",
            f"{stop.step_size:g}",
            f"{stop.step}",
            *(f"{v[name]:.3f}" for name in _SHOWN),
            *(f"{v[name]:.3f}" for name in ("feature_turn", "label_turn")),
            *(f"{v[name]:.4f}" for name in ("hinge", "error", "small_first", "random")),
            f"{stop.factor:.2f}",
        )
    return table


def _layer_table(stacks: list[LayerStop]) -> Table:
    table = Table(
        title="three layers: the stop of each training that is nearest to the norms of "
        "Figures 24 to 26"
    )
    for head in ("rule", "step size", "scale", "step", "norms", "turn / pi"):
        table.add_column(head)
    for head in ("attention", "hinge", "factor", "largest turn / next, any stop"):
        table.add_column(head)
    for stop in stacks:
        run, at = stop.run, stop.place
        turn = run.angle[0] - run.angle[at]
        table.add_row(
            run.rule,
            f"{run.step_size:g}",
            f"{run.scale:g}",
            f"{run.steps[at]}",
            *(" ".join(f"{x:.3f}" for x in values) for values in (run.norm[at], turn)),
            " ".join(f"{x:.2f}" for x in run.attention[at]),
            f"{run.hinge[at]:.4f}",
            f"{stop.factor:.2f}",
            f"{stop.ratio:.2f}",
        )
    return table


def _neighbour_table() -> Table:
    table = Table(
        title="Figures 27 and 28: published errors of in-context learning beside the "
        "exact error of 1-NN"
    )
    for head in ("alpha'", "n", "published ICL", "1-NN, exact", "a miss"):
        table.add_column(head, justify="right")
    for fraction, errors in NEIGHBOURS.items():
        for n, error in zip(NEIGHBOUR_LENGTHS, errors, strict=True):
            nearest = nearest_neighbour_error(fraction, n)
            miss = nearest * (2 - fraction)
            cells = (f"{x:.4f}" for x in (error, nearest, miss))
            table.add_row(f"{fraction:g}", str(n), *cells)
    return table
