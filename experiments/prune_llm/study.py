"""The data of a run: cases, condition numbers and answers, from a model or a folder."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments._frame.run import Run
from experiments.prune_llm import subject as subjects
from experiments.prune_llm.config import Config
from experiments.prune_llm.methods import ARMS, CONDITION, calibration_text
from experiments.prune_llm.subject import Subject, TaskDraw
from icltheory.bridge.answer_cache import PLACE_FIELDS, AnswerCache, TaskFacts, facts_of
from icltheory.bridge.layer_search import layer_choice
from icltheory.bridge.records import Records
from icltheory.bridge.spectra import (
    ConditionNumber,
    SingularSystems,
    condition_numbers,
)
from icltheory.layered.matrices import modules_of
from icltheory.pruning import LayerChoice, kept_parameters, rank_for_rate
from icltheory.strict_json import number

ANSWERS, STUDY = "answers.jsonl", "study.json"
# File for the answers of arms that do not use plain SVD.
METHODS = "answers_methods.jsonl"


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """All data that tables and figures are made of.

    Attributes:
        config: What was asked.
        family: Architecture of the model.
        num_layers: Number of its layers.
        conditions: Condition numbers of all its matrices.
        answers: The answers of each case.
        others: By arm, the answers with another method than plain SVD.
        records: Where the answers are, of both kinds.
    """

    config: Config
    family: str
    num_layers: int
    conditions: tuple[ConditionNumber, ...]
    answers: dict[TaskDraw, AnswerCache]
    others: dict[str, dict[TaskDraw, AnswerCache]]
    records: tuple[Records, ...]

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers of the grid."""
        return subjects.grid_layers(self.config, self.num_layers)

    @property
    def grid_cases(self) -> list[TaskDraw]:
        """Cases of the grid."""
        return subjects.main_cases(self.config, list(self.answers))

    @property
    def judged_cases(self) -> list[TaskDraw]:
        """Cases on which Algorithm 1 runs."""
        return subjects.judged_cases(self.config, list(self.answers))

    def main_case(self, task: str) -> TaskDraw:
        """Returns the grid's case on which Algorithm 1 runs."""
        (case,) = (
            c for c in self.grid_cases if c.task == task and c in self.judged_cases
        )
        return case

    def rates(self, module: str) -> tuple[float, ...]:
        """Rates that leave at least rank 1 in every matrix of a module."""
        if self.config.at_least_one:
            return self.config.rates
        sizes = {min(shape) for shape in self._shapes(module)}
        return tuple(
            rate for rate in self.config.rates if all(_leaves(s, rate) for s in sizes)
        )

    def left_out(self, module: str) -> str:
        """Describes the rates that are left out for a module; empty if none."""
        usable = self.rates(module)
        names = [f"{rate:g}" for rate in self.config.rates if rate not in usable]
        if not names:
            return ""
        size = min(min(shape) for shape in self._shapes(module))
        return f"{', '.join(names)} leaves rank 0 of {size}"

    def answers_of(self, arm: str, case: TaskDraw) -> AnswerCache:
        """Returns the answers of an arm; arms with plain SVD share one cache."""
        return self.others.get(arm, self.answers)[case]

    def kept_share(self, layer: int, module: str, rate: float) -> float:
        """Share of a module's parameters that remains at a rate."""
        shapes = [
            row.shape
            for row in self.conditions
            if row.layer == layer and module in modules_of(row.module, row.matrix)
        ]
        least = self.config.at_least_one
        kept = [
            kept_parameters(shape, rank_for_rate(shape, rate, at_least_one=least))
            for shape in shapes
        ]
        return sum(kept) / sum(m * n for m, n in shapes) if rate else 1.0

    def _shapes(self, module: str) -> list[tuple[int, ...]]:
        rows = (r for r in self.conditions if module in modules_of(r.module, r.matrix))
        return [row.shape for row in rows]

    def choice(self, module: str) -> tuple[int, LayerChoice | None]:
        """Returns a module's layer and how it was chosen; ``None`` if published."""
        given = subjects.given_layer(self.config, self.family, self.num_layers, module)
        if given is not None:
            return given, None
        found = layer_choice(
            self.conditions, module, self.config.top_k, self.config.aggregate
        )
        return found.deepest, found


def systems_of(run: Run) -> SingularSystems:
    """Returns the run's store of singular value decompositions."""
    return SingularSystems(run.folder / "singular_systems")


def begin(config: Config, subject: Subject, run: Run) -> Study:
    """Creates the study of a new or resumed run."""
    path = run.folder / STUDY
    facts = {case: facts_of(task) for case, task in subject.tasks.items()}
    about: dict[str, Any] = {
        "config": dataclasses.asdict(config),
        "weights": subject.digest,
        "tasks": sorted(
            {(*case[:1], *case[2:], f.digest) for case, f in facts.items()}
        ),
    }
    if config.calibration and any(ARMS[arm].calibrated for arm in config.arms):
        text = calibration_text(config, next(iter(subject.tasks.values())))
        about["calibration"] = hashlib.sha256(text.encode()).hexdigest()
    records = _records(run, _other_methods(config), config=about)
    if not path.is_file():
        rows = condition_numbers(subject.model, systems_of(run))
        run.write_json(STUDY, _stored(subject, rows, facts))
    return _read(config, path, records)


def rebuild(config: Config, run: Run) -> Study:
    """Reads the study from a run's folder, without a model and without changes."""
    records = _records(run, _other_methods(config), read_only=True)
    return _read(config, run.folder / STUDY, records)


def _records(run: Run, methods: Any, **options: Any) -> tuple[Records, ...]:
    """Opens the files of answers; methods other than plain SVD have a separate file."""
    names = TaskDraw._fields
    usual = Records(run.folder / ANSWERS, (*names, *PLACE_FIELDS), **options)
    if not methods:
        return (usual,)
    keys = (*names, "method", *PLACE_FIELDS)
    return usual, Records(run.folder / METHODS, keys, **options)


def _other_methods(config: Config) -> dict[str, str]:
    """Returns cache names of the methods of arms that do not use plain SVD."""
    usual = ARMS[CONDITION].stored_as(config)
    names = {arm: ARMS[arm].stored_as(config) for arm in config.arms}
    return {arm: name for arm, name in names.items() if name != usual}


def _stored(
    subject: Subject, rows: Any, facts: dict[TaskDraw, TaskFacts]
) -> dict[str, Any]:
    conditions = [row._asdict() for row in rows]
    for row in conditions:
        del row["singular_values"]
    return {
        "family": subject.model.arch.family,
        "num_layers": subject.model.num_layers,
        "conditions": conditions,
        "cases": [
            {"case": case._asdict(), "facts": found._asdict()}
            for case, found in facts.items()
        ],
    }


def _read(config: Config, path: Path, records: tuple[Records, ...]) -> Study:
    stored = json.loads(path.read_text())
    usual, *other = records
    answers, methods = {}, _other_methods(config)
    others: dict[str, dict[TaskDraw, AnswerCache]] = {arm: {} for arm in methods}
    for entry in stored["cases"]:
        facts = TaskFacts(**entry["facts"])
        facts = facts._replace(labels=tuple(facts.labels))
        case = TaskDraw(**entry["case"])
        answers[case] = AnswerCache(facts, usual, **entry["case"])
        for arm, name in methods.items():
            cache = AnswerCache(facts, other[0], **entry["case"], method=name)
            others[arm][case] = cache
    return Study(
        config,
        stored["family"],
        stored["num_layers"],
        tuple(_condition(row) for row in stored["conditions"]),
        answers,
        others,
        records,
    )


def _leaves(size: int, rate: float) -> bool:
    try:
        return rank_for_rate((size, size), rate) > 0
    except ValueError:
        return False


def _condition(row: dict[str, Any]) -> ConditionNumber:
    numbers: dict[str, Any] = {
        name: number(row[name])
        for name in ("condition_number", "null", "null_ratio", "ceiling")
    }
    more = {"shape": tuple(row["shape"]), "singular_values": np.empty(0)}
    fields: dict[str, Any] = {**row, **numbers, **more}
    return ConditionNumber(**fields)
