"""Evaluates a language model on a task, unpruned and pruned.

``python -m experiments.real_model evaluate --model FOLDER --task NAME`` prints the
accuracy with its interval; with ``--prune`` the pruned model stands beside the unpruned
one, with their paired difference. Nothing is written unless ``--save`` names a file.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from experiments._frame.progress import Activity, Display
from experiments.real_model.commands.options import (
    Pruned,
    TaskOptions,
    as_row,
    check_file,
    read_options,
    save_numbers,
)
from icltheory.bridge import Evaluation, clip_modules, evaluate
from icltheory.bridge.answer_cache import facts_of
from icltheory.bridge.model import weights_digest
from icltheory.bridge.tasks import LanguageTask
from icltheory.statistics import compare, majority_baseline, proportion_interval


@dataclasses.dataclass(frozen=True)
class Options(Pruned, TaskOptions):
    """Options of the command ``evaluate``.

    Attributes:
        split: Examples that are asked.
        save: File for the numbers and the answer to every example, as JSON; none is
            written if left out.
    """

    split: Literal["validation", "test"] = "test"
    save: Path | None = None

    def check(self) -> None:
        """Raises for options that are invalid whatever the model is."""
        super().check()
        check_file("save", self.save)


def main(argv: list[str] | None = None) -> None:
    """Parses the command line, evaluates and prints the results."""
    options = read_options(Options, argv, "evaluate", __doc__)
    task, model = options.load_task(), options.load_model()
    prune = [str(one) for one in options.interventions]
    # A single model is called "model", since it may itself be a pruned checkpoint.
    models = {"unpruned" if prune else "model": model}
    if prune:
        models[" ".join(prune)] = clip_modules(
            model, options.interventions, at_least_one=options.at_least_one
        )
    if not task.examples(options.split):
        raise ValueError(
            f"split: expected examples of {task.name} {options.split}, got none"
        )
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{options.describe(model, task)}, {options.split}")
    display, found, labels = Display(Console(stderr=True)), {}, None
    for name, one in models.items():
        with display.during(Activity(name, unit="examples")) as activity:
            answers = evaluate(
                one,
                task,
                options.split,
                options.given_shots,
                batch_size=options.batch_size,
                progress=activity.follow,
            )
        found[name], labels = _judged(options, task, answers), answers.labels
    console.print(_table(found, options.level), soft_wrap=False)
    silent = [name for name, one in found.items() if one["interval"] is None]
    for name in silent:
        console.print(
            f"{name}: all answers are NaN, so that it has no accuracy; is the range of "
            "the dtype too small?"
        )
    compared = None
    if prune and silent:
        console.print("difference, paired: none, as a model has no accuracy")
    elif prune:
        pair = [one["correct"] for one in found.values()]
        compared = compare(*pair, level=options.level)
        console.print(f"difference, paired: {compared}")
    share = majority_baseline(labels, task.labels).share
    console.print(f"share of the commonest label: {share:.4f}")
    save_numbers(
        options.save,
        {
            "options": {**vars(options), "save": str(options.save), "prune": prune},
            "weights": weights_digest(model),
            "task": facts_of(task)._asdict(),
            "models": [
                {"prune": prune if number else [], **one}
                for number, one in enumerate(found.values())
            ],
            "labels": labels,
            "comparison": None if compared is None else dataclasses.asdict(compared),
        },
        console,
    )


def _judged(options: Options, task: LanguageTask, found: Evaluation) -> dict[str, Any]:
    """Judges answers by the rules of the task's profile; NaN if every answer is."""
    right = found.correct
    if facts_of(task).ties_are_wrong:
        best = found.scores.max(axis=1, keepdims=True)
        right = right & ((found.scores == best).sum(axis=1) == 1)
    count, silent = int(right.sum()), found.num_nan == found.num_examples
    total = len(right) - (task.denominator == "n-1")
    interval = proportion_interval(count, len(right), level=options.level)
    return {
        "accuracy": math.nan if silent else count / total,
        "interval": None if silent else interval,
        "num_ties": found.num_ties,
        "num_nan": found.num_nan,
        "predictions": found.predictions,
        "correct": right,
    }


def _table(found: dict[str, dict[str, Any]], level: float) -> Table:
    rows = Table()
    names = ("model", "right", "accuracy", f"{100 * level:g} % interval", "ties", "NaN")
    for name in names:
        rows.add_column(name)
    for name, one in found.items():
        silent = one["interval"] is None
        rows.add_row(
            name,
            f"{one['correct'].sum():,} of {len(one['correct']):,}",
            "NaN" if silent else f"{one['accuracy']:.4f}",
            "" if silent else as_row(one["interval"]),
            f"{one['num_ties']}",
            f"{one['num_nan']}",
        )
    return rows
