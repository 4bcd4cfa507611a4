"""Evaluates a language model on a task, unpruned and pruned.

``python -m experiments.prune_llm evaluate --model FOLDER --task NAME`` prints it with
its interval; with ``--prune`` the pruned model stands beside the unpruned one, with
their paired difference. Nothing is written unless ``--save`` names a file.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from experiments._frame.progress import Activity, Display
from experiments.prune_llm.commands.files import check_file, write_whole
from experiments.prune_llm.commands.options import (
    Pruned,
    TaskOptions,
    as_row,
    described,
    read_options,
)
from icltheory.bridge import Evaluation, LanguageModel, clip_modules, evaluate
from icltheory.bridge.answer_cache import facts_of
from icltheory.bridge.model import weights_digest
from icltheory.bridge.tasks import LanguageTask
from icltheory.statistics import (
    Comparison,
    Interval,
    compare,
    majority_baseline,
    proportion_interval,
)
from icltheory.strict_json import plain


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


@dataclasses.dataclass(frozen=True, eq=False)
class Judged:
    """One evaluated model.

    Attributes:
        name: "model", "unpruned", or what was clipped.
        evaluation: Its answers.
        correct: Which of them are right, by the rules of the task's profile.
        accuracy: Their share, by the task's denominator; NaN if every answer is.
    """

    name: str
    evaluation: Evaluation
    correct: np.ndarray
    accuracy: float

    @property
    def answered(self) -> bool:
        """Whether any answer is a number."""
        return not math.isnan(self.accuracy)


def judge(
    options: Options, model: LanguageModel, task: LanguageTask, name: str, show: Any
) -> Judged:
    """Evaluates one model on the task."""
    found = evaluate(
        model,
        task,
        options.split,
        options.given_shots,
        batch_size=options.batch_size,
        progress=show,
    )
    right = found.correct
    if facts_of(task).ties_are_wrong:
        best = found.scores.max(axis=1, keepdims=True)
        right = right & ((found.scores == best).sum(axis=1) == 1)
    total = len(right) - (task.denominator == "n-1")
    accuracy = float(right.sum() / total)
    if found.num_nan == found.num_examples:
        accuracy = math.nan
    return Judged(name, found, right, accuracy)


def main(argv: list[str] | None = None) -> None:
    """Parses the command line, evaluates and prints the results."""
    options = read_options(Options, argv, "evaluate", __doc__)
    task = options.load_task()
    model = options.load_model()
    # A single model is called "model", since it may itself be a pruned checkpoint.
    models = {"unpruned" if options.interventions else "model": model}
    if options.interventions:
        clipped = clip_modules(
            model, options.interventions, at_least_one=options.at_least_one
        )
        models[" ".join(map(str, options.interventions))] = clipped
    if not task.examples(options.split):
        raise ValueError(
            f"split: expected examples of {task.name} {options.split}, got none"
        )
    console = Console()
    console.print(
        f"{described(options, model, task)}, {options.split}",
        highlight=False,
        soft_wrap=True,
    )
    display, found = Display(Console(stderr=True)), []
    for name, one in models.items():
        with display.during(Activity(name, unit="examples")) as activity:
            found.append(judge(options, one, task, name, activity.follow))
    console.print(table(found, options.level))
    silent = [one.name for one in found if not one.answered]
    for name in silent:
        console.print(
            f"{name}: all answers are NaN, so that it has no accuracy; is the range of "
            "the dtype too small?",
            soft_wrap=True,
        )
    compared = None
    if len(found) > 1 and silent:
        console.print("difference, paired: none, as a model has no accuracy")
    elif len(found) > 1:
        compared = compare(*(f.correct for f in found), level=options.level)
        console.print(f"difference, paired: {compared}", soft_wrap=True)
    labels = found[0].evaluation.labels
    share = majority_baseline(labels, task.labels).share
    console.print(f"share of the commonest label: {share:.4f}")
    if options.save is not None:
        numbers = as_numbers(options, model, task, found, compared)
        write_whole(options.save, json.dumps(plain(numbers), indent=1) + "\n")
        console.print(f"written to {options.save}", soft_wrap=True)


def table(found: list[Judged], level: float) -> Table:
    """Builds the table of each model's accuracy with its Wilson interval."""
    rows = Table()
    names = ("model", "right", "accuracy", f"{100 * level:g} % interval", "ties", "NaN")
    for name in names:
        rows.add_column(name)
    for one in found:
        right, total = int(one.correct.sum()), len(one.correct)
        interval = interval_of(one, level)
        rows.add_row(
            one.name,
            f"{right:,} of {total:,}",
            f"{one.accuracy:.4f}" if one.answered else "NaN",
            "" if interval is None else as_row(interval),
            f"{one.evaluation.num_ties}",
            f"{one.evaluation.num_nan}",
        )
    return rows


def interval_of(one: Judged, level: float) -> Interval | None:
    """Returns the Wilson interval of an accuracy; ``None`` where there is none."""
    if not one.answered:
        return None
    return proportion_interval(int(one.correct.sum()), len(one.correct), level=level)


def as_numbers(
    options: Options,
    model: LanguageModel,
    task: LanguageTask,
    found: list[Judged],
    compared: Comparison | None,
) -> dict[str, Any]:
    """Returns the contents of the file named by ``--save``."""
    prune = [str(one) for one in options.interventions]
    asked = dataclasses.asdict(options) | {"save": str(options.save), "prune": prune}
    return {
        "options": asked,
        "weights": weights_digest(model),
        "task": facts_of(task)._asdict(),
        "models": [
            {
                "prune": prune if number else [],
                "accuracy": one.accuracy,
                "interval": interval_of(one, options.level),
                "num_ties": one.evaluation.num_ties,
                "num_nan": one.evaluation.num_nan,
                "predictions": one.evaluation.predictions.tolist(),
                "correct": one.correct.tolist(),
            }
            for number, one in enumerate(found)
        ],
        "labels": found[0].evaluation.labels.tolist(),
        "comparison": None if compared is None else dataclasses.asdict(compared),
    }
