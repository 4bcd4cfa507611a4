"""Reads task files of lm-evaluation-harness as declarations."""

import dataclasses
import glob
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from icltheory._checks import check_choice
from icltheory.bridge.tasks.declaration_file import document_of
from icltheory.bridge.tasks.declare import (
    File,
    PromptTemplate,
    Split,
    TaskRecipe,
    TaskSpec,
)

__all__ = ["read_harness_task"]

# Metrics of the harness, each with the scoring that it is the mean of.
_METRICS = {
    "acc": "log_likelihood",
    "acc_norm": "log_likelihood_per_character",
    "acc_bytes": "log_likelihood_per_byte",
}
# Entries that do not affect results.
_WITHOUT_EFFECT = (
    "tag",
    "task_alias",
    "metadata",
    "should_decontaminate",
    "doc_to_decontamination_query",
)
_FIELD = re.compile(r"\s*([A-Za-z_]\w*)(?:\.(strip|rstrip)\(\))?\s*")
_TRIMMED = {None: "", "strip": "!t", "rstrip": "!e"}


@dataclasses.dataclass(frozen=True)
class _Data:
    data_files: Mapping[str, str | tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class _Metric:
    metric: str
    aggregation: str = "mean"
    higher_is_better: str = "true"


@dataclasses.dataclass(frozen=True)
class _Config:
    """The supported entries of a task file."""

    task: str
    dataset_path: str
    dataset_kwargs: _Data
    output_type: str
    doc_to_text: str
    doc_to_choice: str | tuple[str, ...]
    doc_to_target: str
    dataset_name: str | None = None
    training_split: str | None = None
    validation_split: str | None = None
    test_split: str | None = None
    fewshot_split: str | None = None
    num_fewshot: int | None = None
    description: str = ""
    target_delimiter: str = " "
    fewshot_delimiter: str = "\n\n"
    metric_list: tuple[_Metric, ...] = (_Metric("acc"), _Metric("acc_norm"))
    repeats: int = 1


def read_harness_task(path: Any, metric: str = "acc") -> TaskSpec:
    """Reads a multiple-choice task of lm-evaluation-harness from its YAML file.

    Its ``acc``, ``acc_norm`` or ``acc_bytes`` without demonstrations is then the
    accuracy of :func:`~icltheory.bridge.evaluate` on the split ``"test"``, which is the
    validation split of a file without a test split. What would make another number is
    refused by name: other output types, data sets that are no local JSON files, Jinja
    beyond ``{{field}}``, ``{{field.strip()}}`` and ``{{[field, field]}}``, functions,
    includes, filters, descriptions, and ``num_fewshot`` above 0, for which the harness
    draws demonstrations in its own way. The first n rows of a split, which its sampler
    ``first_n`` takes, are ``task.with_demonstrations(rows)``.

    A field at the end of ``doc_to_text`` must not end in white space, which the harness
    counts as part of the answer. Data files are relative to the folder of the file.

    Args:
        path: The file, ``.yaml`` or ``.yml``.
        metric: ``"acc"``, ``"acc_norm"`` or ``"acc_bytes"``, which decides the scoring.

    Returns:
        The declaration of a choice.

    Source: Biderman et al. (2024), "Lessons from the trenches on reproducible
    evaluation of language models".
    """
    check_choice("metric", metric, tuple(_METRICS))
    document = document_of(path)
    given = document.items(document.root)
    read = {name: node for name, node in given.items() if name not in _WITHOUT_EFFECT}
    config: _Config = document.record(document.root, read, _Config)

    def refuse(name: str, message: str) -> None:
        document.refuse(given.get(name, document.root), f"{name}: expected {message}")

    _check_plain(config, metric, refuse)
    _check_scalars(given, refuse)
    options, choices = _options(config, refuse)
    question, fields = _template(config.doc_to_text, "doc_to_text", refuse)
    kept = question.rstrip()
    if not kept:
        refuse("doc_to_text", f"a text that is not blank, got {question!r:.40}")
    # The harness counts white space before the answer as part of the answer.
    front = question[len(kept) :] + _literal(config.target_delimiter)
    texts = [_template(option, "doc_to_choice", refuse) for option in options]
    names = fields.union(*(names for _, names in texts))
    return TaskSpec(
        name=config.task,
        kind="choice",
        fields={name: f"{{{name}}}" for name in sorted(names)},
        labels=_labels(config, len(options), choices, refuse),
        recipes=TaskRecipe(
            PromptTemplate(
                demonstration=kept + "{label}" + _literal(config.fewshot_delimiter),
                query=kept,
                options=tuple(front + text for text, _ in texts),
            ),
            Split(
                per_class=0,
                validation="validation" if config.validation_split else 0,
                test="test" if config.test_split else "validation",
            ),
            scoring=_METRICS[metric],
        ),
        files=tuple(_files(config, document.path.parent, refuse)),
        folder=str(document.path.parent),
    )


def is_of_harness(path: Any) -> bool:
    """Whether a YAML file defines prompts in the format of lm-evaluation-harness."""
    document = document_of(path)
    return "doc_to_text" in document.items(document.root)


def _check_plain(config: _Config, metric: str, refuse: Any) -> None:
    """Raises for entries that would change the metric."""
    known = [row.metric for row in config.metric_list]
    if metric not in known:
        refuse("metric_list", f"{metric}, got {', '.join(known)}")
    for row in config.metric_list:
        if row.aggregation != "mean":
            refuse("metric_list", f"the aggregation mean, got {row.aggregation}")
    wanted = {
        "output_type": "multiple_choice",
        "dataset_path": "json",
        "description": "",
        "repeats": 1,
    }
    for name, value in wanted.items():
        if getattr(config, name) != value:
            refuse(name, f"{value!r}, got {getattr(config, name)!r}")
    if config.dataset_name is not None:
        refuse("dataset_name", f"null for local files, got {config.dataset_name!r}")
    if config.num_fewshot:
        refuse(
            "num_fewshot",
            f"0, since the harness draws demonstrations at random, got "
            f"{config.num_fewshot}",
        )
    if config.target_delimiter.strip() and metric != "acc":
        refuse("target_delimiter", f"white space for {metric}")
    if not (config.test_split or config.validation_split):
        refuse("test_split", "test_split or validation_split, got neither")


def _check_scalars(given: Mapping[str, Any], refuse: Any) -> None:
    """Raises for words that the harness reads as booleans or numbers."""
    for name in ("doc_to_text", "doc_to_choice", "doc_to_target"):
        node = given[name]
        for entry in node.value if isinstance(node.value, list) else [node]:
            if not entry.tag.endswith(":str"):
                refuse(name, f"texts in quotation marks, got {entry.value}")


def _options(config: _Config, refuse: Any) -> tuple[list[str], tuple[str, ...]]:
    """Returns the options' templates, and the options if they are fixed."""
    given = config.doc_to_choice
    if isinstance(given, tuple):
        for choice in given:
            if "{{" in choice or choice != choice.lstrip() or not choice:
                refuse("doc_to_choice", f"plain words, got {choice!r}")
        return list(given), given
    inside = re.fullmatch(r"\s*\{\{\s*\[([^\[\]]*)\]\s*\}\}\s*", given)
    entries = inside[1].split(",") if inside else []
    if not entries or not all(map(_FIELD.fullmatch, entries)):
        refuse(
            "doc_to_choice", f"a list of texts or {{{{[field, ...]}}}}, got {given!r}"
        )
    return [f"{{{{{entry}}}}}" for entry in entries], ()


def _labels(
    config: _Config, count: int, choices: tuple[str, ...], refuse: Any
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Returns the column of the correct option and its labels."""
    given = config.doc_to_target
    found = re.fullmatch(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}|([A-Za-z_]\w*)", given)
    if found is None:
        refuse("doc_to_target", f"a column or {{{{column}}}}, got {given!r}")
        raise AssertionError
    column, numbers = found[1] or found[2], tuple(map(str, range(count)))
    digits = [choice for choice in choices if choice.isdigit()]
    if digits and found[2]:
        refuse(
            "doc_to_target",
            f"{{{{{column}}}}}, since the choice {digits[0]} could be a number",
        )
    if not choices or digits:
        return ((column, numbers),)
    return (column, numbers), (column, choices)


def _files(config: _Config, folder: Path, refuse: Any) -> list[File]:
    """Returns the data files under this package's names of splits."""
    files, data = [], config.dataset_kwargs.data_files
    for split in ("train", "validation", "test"):
        name = getattr(
            config, "training_split" if split == "train" else f"{split}_split"
        )
        if name is None:
            continue
        paths = data.get(name)
        paths = (paths,) if isinstance(paths, str) else paths or ()
        if len(paths) != 1:
            refuse("dataset_kwargs", f"one file for {name!r}, got {list(paths)}")
        if not (folder / paths[0]).is_file():
            raise FileNotFoundError(
                f"{folder / paths[0]}: no such file of {config.task}"
            )
        relative = os.path.relpath(folder / paths[0], folder)
        files.append(File(split, glob.escape(relative)))
    return files


def _template(text: str, name: str, refuse: Any) -> tuple[str, set[str]]:
    """Converts a Jinja template of plain fields to a format string and its fields."""
    if re.fullmatch(r"[A-Za-z_]\w*", text) and name == "doc_to_text":
        return f"{{{text}}}", {text}
    parts = re.split(r"\{\{(.*?)\}\}", text, flags=re.DOTALL)
    written, fields = [], set()
    for number, part in enumerate(parts):
        if number % 2 == 0:
            for mark in ("{%", "{#", "{{", "}}"):
                if mark in part:
                    refuse(name, f"no Jinja but {{{{field}}}}, got {mark}")
            written.append(_literal(part))
            continue
        found = _FIELD.fullmatch(part)
        if found is None:
            refuse(name, f"{{{{field}}}} or {{{{field.strip()}}}}, got {{{{{part}}}}}")
            raise AssertionError
        fields.add(found[1])
        written.append(f"{{{found[1]}{_TRIMMED[found[2]]}}}")
    return "".join(written), fields


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
