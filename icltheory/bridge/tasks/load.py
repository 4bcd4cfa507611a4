"""Loads a task: finds its declaration, reads its rows and splits them."""

import functools
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from icltheory._checks import check_nonnegative_int, wrong
from icltheory.bridge.tasks.catalogue import TASKS
from icltheory.bridge.tasks.declare import (
    SUFFIXES,
    Split,
    TaskRecipe,
    TaskSpec,
    is_declaration_file,
    read_task_spec,
)
from icltheory.bridge.tasks.files import (
    SourceRow,
    hub_source,
    local_source,
    read_table,
)
from icltheory.bridge.tasks.task import Example, LanguageTask, PromptTemplate


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

    Source: Yao et al. (2024), sections C.1 to C.3.
    """
    spec = task_spec(name)
    recipe = spec.recipe(profile)
    prompt, split = recipe.prompt, recipe.split
    check_nonnegative_int("question_seed", question_seed)
    check_nonnegative_int("demonstration_seed", demonstration_seed)
    check_nonnegative_int("reserved", reserved)
    path = (spec.folder or None) if path is None else path
    read = hub_source(spec) if path is None else local_source(spec, path)
    sources: list[str] = []

    @functools.cache
    def examples(part: str) -> tuple[Example, ...]:
        origin, rows = read(part)
        sources.append(f"{part}: {origin} ({len(rows)} rows)")
        fields = [_fields(spec, origin, row) for row in rows]
        labels = [_label(spec, recipe, origin, row) for row in rows]
        return tuple(map(Example, fields, labels, range(len(rows))))

    words = prompt.words or tuple(str(i + 1) for i in range(prompt.num_labels))
    in_files = split.validation in (0, "validation") and split.test != "rest"
    rows = () if in_files and not split.per_class else examples("train")
    seeds = question_seed, demonstration_seed, reserved
    demonstrations, validation, rest = draw(spec.name, rows, split, words, *seeds)
    from_file = split.validation == "validation"
    return LanguageTask(
        name=spec.name,
        profile=profile,
        kind=spec.kind,
        labels=prompt.scored or words,
        demonstrations=demonstrations,
        validation=examples("validation") if from_file else validation,
        test=rest if split.test == "rest" else examples(split.test),
        template=prompt,
        scoring=recipe.scoring,
        denominator=recipe.denominator,
        sources=tuple(sources),
    )


def load_table(
    path: Any,
    *,
    text: str = "text",
    label: str = "label",
    per_class: int = 4,
    seed: int = 0,
) -> LanguageTask:
    """Makes a task of one table with a column of texts and a column of label words.

    A prompt is ``"{text} : {label}"``, a line for each demonstration. Of each class
    ``per_class`` rows are demonstrations, half of what these leave of the smallest
    class are validation, and all other rows are the test set.

    Args:
        path: A csv, tsv or JSON-lines file, or one in another format of
            :func:`load_task`.
        text: Name of the column of texts.
        label: Name of the column of label words.
    """
    check_nonnegative_int("per_class", per_class)
    rows = read_table(path, keys=(label,)).rows
    labels = [row.columns[label] for row in rows if label in row.columns]
    words = tuple(sorted(set(labels)))
    if len(words) < 2:
        wanted = f"two label words or more in column {label!r}"
        got = ", ".join(words) or "none"
        raise ValueError(f"{path}: expected {wanted}, got {got}")
    half = max(1, (min(map(labels.count, words)) - per_class) // 2)
    split = Split(seed, per_class, validation=half, test="rest")
    prompt = PromptTemplate("{text!t} : {label}\n", "{text!t} :", words)
    recipe = TaskRecipe(prompt, split, scoring="average_log_likelihood")
    fields = {"text": f"{{{text}}}"}
    return load_task(TaskSpec(Path(path).stem, fields, ((label, words),), recipe), path)


def task_spec(name: str | os.PathLike | TaskSpec) -> TaskSpec:
    """The declaration of a task, by name or by file.

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


def _fields(spec: TaskSpec, origin: str, row: SourceRow) -> dict[str, str]:
    found = {}
    for name in spec.fields:
        for template in spec.templates(name):
            try:
                found[name] = template.format_map(row.columns)
                break
            except KeyError:
                continue
        else:
            raise ValueError(
                f"{origin}:{row.line}: expected columns for {name!r} "
                f"({spec.fields[name]}), got {', '.join(row.columns)}{_no_text(row)}"
            )
    if not any(text.strip() for text in found.values()):
        raise ValueError(
            f"{origin}:{row.line}: expected a text in {', '.join(found)}, got blanks"
        )
    return found


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


def _no_text(row: SourceRow) -> str:
    """Describes the columns that hold no text, for error messages."""
    return "".join(f"; {name} is {text[:40]}" for name, text in row.no_text.items())


def draw(
    name: str,
    examples: Sequence[Example],
    split: Split,
    words: Sequence[str],
    question_seed: int,
    demonstration_seed: int,
    reserved: int,
) -> tuple[tuple[Example, ...], tuple[Example, ...], tuple[Example, ...]]:
    """Splits training rows into demonstrations, validation and rest.

    The shuffle is ``numpy.random.default_rng(seed).permutation(n)``, which is also what
    ``Dataset.shuffle`` of Hugging Face does; its seed is that of the split for 0, else
    ``[split.seed, number]``. Another draw of the demonstrations shuffles all rows once
    more and takes the first of each class that are no question; the last ``reserved``
    rows of each class are none.
    """
    everything = "rest" in (split.validation, split.test)
    count = 0 if isinstance(split.validation, str) else split.validation
    taken = len(examples) if split.validation == "rest" else count
    kept = reserved if everything or count else 0
    first, last = split.skip, split.skip + split.per_class
    needed = max(last, split.per_class + count) + kept
    shown: list[list[Example]] = []
    validation: list[Example] = []
    rest: list[Example] = []
    for label, rows in _shuffled(examples, split, len(words), question_seed).items():
        if len(rows) < needed:
            wanted = f"at least {needed} training rows of class {words[label]!r}"
            raise wrong(name, wanted, len(rows))
        left = rows[:first] + rows[last : len(rows) - kept]
        shown.append(rows[first:last])
        validation += left[:taken]
        rest += left[taken:]
    if demonstration_seed and split.per_class:
        questions = [*validation, *rest] if everything else validation
        asked = {example.index for example in questions}
        others = _shuffled(examples, split, len(words), demonstration_seed).values()
        shown = [[each for each in rows if each.index not in asked] for rows in others]
        fewest = min(map(len, shown))
        if fewest <= split.per_class:
            raise ValueError(
                f"demonstration_seed: expected more than {split.per_class} training "
                f"rows of each class of {name} that are not used as questions, got "
                f"{fewest}; set reserved= to keep some for other demonstrations"
            )
        shown = [rows[: split.per_class] for rows in shown]
    turns = tuple(chain.from_iterable(zip(*shown, strict=True)))
    return turns[: split.keep], tuple(validation), tuple(rest)


def _shuffled(
    examples: Sequence[Example], split: Split, num_labels: int, seed: int
) -> dict[int, list[Example]]:
    """The shuffled rows of each class."""
    by_class = {label: [] for label in split.order or range(num_labels)}
    rng = np.random.default_rng([split.seed, seed] if seed else split.seed)
    for position in rng.permutation(len(examples)).tolist():
        example = examples[position]
        by_class[example.label].append(example)
    return by_class
