"""Builds the table, figure and checks of a run."""

from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from experiments._frame.looks import (
    checkpoint_name,
    labels_are_arbitrary,
    plain_words,
)
from experiments._frame.report import Check, Report
from experiments.prune_llm.subject import Subject
from experiments.shots.config import Config
from experiments.shots.curve import AccuracyCurve, Point, curve, differences
from experiments.shots.drawing import ShotsPanel, accuracy_against_shots
from experiments.shots.measure import correct
from icltheory import plotting
from icltheory.bridge.records import Records

_PRIOR = "grey: no rule is shown yet,\nonly a prior over label words"


class TaskFindings(NamedTuple):
    """Curves and differences for one task.

    Attributes:
        curves: The curve of each rate.
        differences: Pruned minus unpruned, one for each number of shots; or nothing.
        chance: Accuracy of guessing.
        majority: Accuracy of always answering the commonest class.
        questions: Number of questions.
        same_questions: Whether all draws share them.
        ties: Answers whose best score occurred twice.
        nan: Answers without a prediction.
        pruned: What the pruned model is called.
    """

    curves: dict[float, AccuracyCurve]
    differences: tuple[Point, ...]
    chance: float
    majority: float
    questions: int
    same_questions: bool
    ties: int
    nan: int
    pruned: str


def found(
    config: Config, subject: Subject, records: Records, name: str
) -> TaskFindings:
    """Computes the curves and differences of one task from the records."""
    tasks = [task for case, task in subject.tasks.items() if case.task == name]
    asked = [task.examples(config.split) for task in tasks]
    same = all(examples == asked[0] for examples in asked)
    right = {rate: correct(config, records, name, rate) for rate in config.rates}
    counts = np.mean([task.class_counts(config.split) for task in tasks], axis=0)
    predictions = records.table("prediction", task=name).values
    return TaskFindings(
        curves={rate: curve(x, same, config.level) for rate, x in right.items()},
        differences=differences(right[0.0], right[config.rate], same, config.level)
        if config.rate
        else (),
        chance=1 / len(counts),
        majority=float(counts.max() / counts.sum()),
        questions=len(asked[0]),
        same_questions=same,
        ties=int(records.table("tied", task=name).values.astype(int).sum()),
        nan=int((predictions == -1).sum()),
        pruned=f"{plain_words(config.module)} of layer "
        f"{config.layer % subject.model.num_layers} clipped at rate {config.rate:g}",
    )


def report(config: Config, results: dict[str, TaskFindings]) -> Report:
    """Builds the tables, figure, checks and numbers of a run."""
    rising = config.rising or tuple(results)
    checks = [
        check
        for name, one in results.items()
        if name in rising
        for check in _checks(name, one)
    ]
    tasks = {name: _plain(config, one) for name, one in results.items()}
    return Report(
        {"tasks": tasks},
        checks=checks,
        tables=[_table(config, name, one) for name, one in results.items()],
        figures={"shots.png": figure(config, results)},
        interval_level=config.level,
        axes={"tasks.*.*.draws": ["draw and order", "number of demonstrations"]},
    )


def _checks(name: str, one: TaskFindings) -> list[Check]:
    first, last = (one.curves[0.0].shots[place] for place in (0, -1))
    return [
        Check(
            f"{name}: upper end with the fewest shots, below the lower with the most",
            first.high,
            last.low,
            "<=",
        ),
        Check(
            f"{name}: no rise, below the lower end of the paired one",
            0.0,
            one.curves[0.0].rise.low,
            "<=",
        ),
    ]


def figure(config: Config, results: dict[str, TaskFindings]):
    """Draws the curves in the style of Figure 2."""
    panels = {}
    for name, one in results.items():
        curves, points = {}, {}
        for rate, found in one.curves.items():
            ends = np.array(found.shots)
            curves[_label(one, rate)] = plotting.Curve(
                ends[:, 0], ends[:, 2], ends[:, 3]
            )
            points[_label(one, rate)] = found.draws
        prior = config.shots[0] == 0 and labels_are_arbitrary(name)
        panels[plain_words(name)] = ShotsPanel(
            config.shots,
            curves,
            one.chance,
            one.majority,
            points,
            _PRIOR if prior else "",
        )
    seeds, orders = len(config.demonstration_seeds), len(config.orders)
    return accuracy_against_shots(
        panels,
        f"Accuracy of {checkpoint_name(config.checkpoint)} against demonstrations\n"
        f"(bars: {100 * config.level:g} % intervals over draws of "
        f"demonstrations and questions; dots: {seeds} draws in {orders} "
        f"order{'s' * (orders > 1)})",
    )


def _label(one: TaskFindings, rate: float) -> str:
    return one.pruned if rate else "unpruned"


def _table(config: Config, name: str, one: TaskFindings) -> Table:
    table = Table(
        title=f"{name}: accuracy on {one.questions} questions; chance "
        f"{one.chance:.3f}, majority {one.majority:.3f}, ties {one.ties}, NaN {one.nan}"
    )
    table.add_column("shots", justify="right")
    for rate in config.rates:
        table.add_column(_label(one, rate), justify="right")
    if config.rate:
        table.add_column("difference", justify="right")
        table.add_column("chance?")
    for place, shots in enumerate(config.shots):
        cells = [_cell(one.curves[rate].shots[place]) for rate in config.rates]
        if config.rate:
            change = one.differences[place]
            cells += [_cell(change), "yes" if _may_be_chance(change) else "no"]
        table.add_row(str(shots), *cells)
    rise = (_cell(one.curves[rate].rise) for rate in config.rates)
    table.add_row("rise", *rise)
    return table


def _cell(e: Point) -> str:
    return f"{e.mean:.3f} ({e.standard_error:.3f}) [{e.low:.2f}, {e.high:.2f}]"


def _may_be_chance(change: Point) -> bool:
    return not (change.low > 0 or change.high < 0)


def _plain(config: Config, one: TaskFindings) -> dict[str, Any]:
    row: dict[str, Any] = {
        name: getattr(one, name)
        for name in ("chance", "majority", "questions", "same_questions", "ties", "nan")
    }
    for rate, found in one.curves.items():
        row[f"rate {rate:g}"] = {
            "shots": {
                str(k): e._asdict()
                for k, e in zip(config.shots, found.shots, strict=True)
            },
            "rise": found.rise._asdict(),
            "draws": found.draws.tolist(),
        }
    if one.differences:
        row["difference"] = {
            str(k): {**e._asdict(), "could_be_chance": _may_be_chance(e)}
            for k, e in zip(config.shots, one.differences, strict=True)
        }
    return row
