"""Evaluates the model and records its answers question by question."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.prune_llm.subject import Subject, TaskDraw
from experiments.shots.config import Config
from icltheory.batching import Progress
from icltheory.bridge.evaluation import Evaluation, evaluate, evaluate_rates
from icltheory.bridge.records import Records
from icltheory.bridge.tasks import LanguageTask

KEY = ("task", "shots", "seed", "order", "rate", "example")


def records_of(config: Config, subject: Subject, path: Path) -> Records:
    """Opens the records of a run; raises if they belong to another model or config."""
    return Records(path, KEY, config={"config": config, "weights": subject.digest})


def measure(
    config: Config,
    subject: Subject,
    records: Records,
    progress: Progress | None = None,
) -> Iterator[TaskDraw]:
    """Evaluates the answers that are not recorded yet; yields each finished case."""
    for case, task in subject.tasks.items():
        if records.done(**case._asdict()):
            continue
        found = _answers(config, subject, case, task, progress)
        lines = []
        for rate, evaluation in zip(config.rates, found, strict=True):
            lines += _lines({**case._asdict(), "rate": rate}, evaluation)
        records.append(lines)
        yield case


def _answers(
    config: Config,
    subject: Subject,
    case: TaskDraw,
    task: LanguageTask,
    progress: Progress | None,
) -> tuple[Evaluation, ...]:
    model = subject.model
    size: dict[str, Any] = {"batch_size": config.batch_size, "progress": progress}
    if not config.rate:
        return (evaluate(model, task, config.split, case.shots, **size),)
    layer = config.layer % model.num_layers
    return evaluate_rates(
        model,
        task,
        layer,
        config.module,
        config.rates,
        config.split,
        case.shots,
        **size,
    )


def _lines(key: dict, evaluation: Evaluation) -> Iterator[dict]:
    scores = evaluation.scores
    tied = (scores == scores.max(axis=1, keepdims=True)).sum(axis=1) > 1
    for i, (prediction, label) in enumerate(
        zip(evaluation.predictions, evaluation.labels, strict=True)
    ):
        yield {
            **key,
            "example": i,
            "prediction": int(prediction),
            "label": int(label),
            "tied": bool(tied[i]),
        }


def correct(config: Config, records: Records, task: str, rate: float) -> np.ndarray:
    """Which answers are right, ``(shots, seeds, orders, questions)``."""
    asked = {"task": task, "rate": rate}
    predictions = records.table("prediction", **asked)
    labels = records.table("label", **asked)
    right = predictions.values == labels.values
    place = {row: i for i, row in enumerate(predictions.rows)}
    order = [
        place[task, shots, seed, order, rate]
        for shots in config.shots
        for seed in config.demonstration_seeds
        for order in config.orders
    ]
    sizes = (config.shots, config.demonstration_seeds, config.orders)
    return right[order].reshape(*map(len, sizes), -1)
