"""Loads a task: rows become examples, and examples become splits."""

import os
from collections.abc import Callable
from typing import Any

from icltheory._checks import check_nonnegative_int
from icltheory.bridge.tasks.catalogue import TASKS
from icltheory.bridge.tasks.declaration_file import (
    SUFFIXES,
    is_declaration_file,
    read_task_spec,
)
from icltheory.bridge.tasks.declare import TaskRecipe, TaskSpec
from icltheory.bridge.tasks.rows import SourceRow, SourceTable
from icltheory.bridge.tasks.sources import hub_source, local_source
from icltheory.bridge.tasks.splits import draw
from icltheory.bridge.tasks.task import Example, LanguageTask

__all__ = ["load_task", "task_spec"]


def load_task(
    name: str | os.PathLike | TaskSpec,
    path: Any = None,
    profile: str = "paper",
    *,
    question_seed: int = 0,
    demonstration_seed: int = 0,
    reserved: int = 0,
) -> LanguageTask:
    """Loads a task: demonstrations, validation and test examples with their prompts.

    Args:
        name: ``"sst2"``, ``"agnews"``, ``"emoc"``, ``"mrpc"``, ``"rte"``, ``"cb"`` or
            ``"copa"``, a declaration of one's own, or the YAML file of one
            (:func:`~icltheory.bridge.tasks.read_task_spec`).
        path: Folder of local files. If ``None``, that of the declaration; without one
            the rows come from the hub.
        profile: ``"paper"`` for what the paper says, ``"authors_code"`` for what the
            authors' scripts do; ``docs/reference/profiles.md`` lists where they part.
        question_seed: 0 draws the validation rows with the published seed of the task,
            another number draws others. Where the test set is what the training rows
            leave (SST-2), it changes with them, and so do the demonstrations of draw 0.
        demonstration_seed: 0 for the published demonstrations, another number for
            others. The questions stay as they are, so that an interval over draws is
            one of the demonstrations alone.
        reserved: Training rows of each class that are never questions. Other draws
            take their demonstrations from these and the published ones, where every
            other row is a question: validation of RTE and CB, test of SST-2.

    Returns:
        The task.

    Source: Yao et al. (2024), sections C.1 to C.3.
    """
    spec = task_spec(name)
    recipe = spec.recipe(profile)
    check_nonnegative_int("question_seed", question_seed)
    check_nonnegative_int("demonstration_seed", demonstration_seed)
    check_nonnegative_int("reserved", reserved)
    path = (spec.folder or None) if path is None else path
    read = hub_source(spec) if path is None else local_source(spec, path)
    examples = _Splits(spec, recipe, read)
    words = recipe.prompt.words or _numbered(recipe.prompt.num_labels)
    seeds = (question_seed, demonstration_seed, reserved)
    rows = examples("train") if recipe.split.uses_training_rows else ()
    parts = draw(spec.name, rows, recipe.split, words, *seeds)
    validation, test = parts.validation, parts.rest
    if recipe.split.validation == "validation":
        validation = examples("validation")
    if recipe.split.test != "rest":
        test = examples(recipe.split.test)
    return LanguageTask(
        name=spec.name,
        profile=profile,
        kind=spec.kind,
        labels=recipe.prompt.scored or words,
        demonstrations=parts.demonstrations,
        validation=validation,
        test=test,
        template=recipe.prompt,
        scoring=recipe.scoring,
        denominator=recipe.denominator,
        sources=tuple(examples.sources),
    )


def task_spec(name: str | os.PathLike | TaskSpec) -> TaskSpec:
    """Returns the declaration of a task, by name or by file.

    Args:
        name: Name of a task of the library, a declaration, or the path of its file.

    Returns:
        The declaration.

    Example:
        >>> task_spec("rte").hub
        ('aps/super_glue', 'rte')
    """
    if isinstance(name, TaskSpec):
        return name
    if is_declaration_file(name):
        return read_task_spec(name)
    if name not in TASKS:
        raise ValueError(
            f"name: expected one of {', '.join(TASKS)}, or a declaration file "
            f"({', '.join(SUFFIXES)}), got {str(name)!r}"
        )
    return TASKS[str(name)]


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(1, count + 1))


class _Splits:
    """Reads each split once and returns labelled examples."""

    def __init__(
        self, spec: TaskSpec, recipe: TaskRecipe, read: Callable[[str], SourceTable]
    ):
        self.spec, self.recipe, self.read = spec, recipe, read
        self.loaded: dict[str, tuple[Example, ...]] = {}
        self.sources: list[str] = []

    def __call__(self, split: str) -> tuple[Example, ...]:
        if split not in self.loaded:
            origin, rows = self.read(split)
            self.sources.append(f"{split}: {origin} ({len(rows)} rows)")
            self.loaded[split] = tuple(
                Example(
                    _fields(self.spec, origin, row),
                    _label(self.spec, self.recipe, origin, row),
                    index,
                )
                for index, row in enumerate(rows)
            )
        return self.loaded[split]


def _fields(spec: TaskSpec, origin: str, row: SourceRow) -> dict[str, str]:
    fields = {}
    for name, templates in spec.fields.items():
        for template in (templates,) if isinstance(templates, str) else templates:
            try:
                fields[name] = template.format_map(row.columns)
                break
            except KeyError:
                continue
        else:
            raise ValueError(
                f"{origin}:{row.line}: expected columns for {name!r} ({templates}), "
                f"got {', '.join(row.columns)}{_no_text(row)}"
            )
    if not any(text.strip() for text in fields.values()):
        raise ValueError(
            f"{origin}:{row.line}: expected a text in {', '.join(fields)}, got blanks"
        )
    return fields


def _no_text(row: SourceRow) -> str:
    """Describes the columns that hold no text, for error messages."""
    return "".join(f"; {name} is {text[:40]}" for name, text in row.no_text.items())


def _label(spec: TaskSpec, recipe: TaskRecipe, origin: str, row: SourceRow) -> int:
    for column, values in spec.labels:
        if row.columns.get(column) in values:
            label = values.index(row.columns[column])
            return recipe.merge[label] if recipe.merge else label
    known = [f"{column} in {', '.join(values)}" for column, values in spec.labels]
    got = {c: row.columns[c] for c, _ in spec.labels if c in row.columns}
    raise ValueError(
        f"{origin}:{row.line}: expected a label ({'; or '.join(known)}), "
        f"got {got or 'none'}{_no_text(row)}"
    )
