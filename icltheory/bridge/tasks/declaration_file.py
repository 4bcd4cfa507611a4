"""Reads task declarations from YAML files."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from icltheory.bridge.tasks.declare import PROFILES, TaskRecipe, TaskSpec

__all__ = ["SUFFIXES", "is_declaration_file", "read_task_spec"]

SUFFIXES = (".yaml", ".yml")


def is_declaration_file(name: Any) -> bool:
    """Whether a name is that of a declaration file.

    Args:
        name: Name of a task, or a path.

    Returns:
        True for a path that ends in ``.yaml`` or ``.yml``.

    Example:
        >>> is_declaration_file("tasks/weather.yaml"), is_declaration_file("sst2")
        (True, False)
    """
    return Path(name).suffix in SUFFIXES


def read_task_spec(path: Any) -> TaskSpec:
    """Reads the declaration of a task from a YAML file.

    The file has the fields of :class:`~icltheory.bridge.TaskSpec`. Those of a
    :class:`~icltheory.bridge.tasks.TaskRecipe` stand beside them, or under ``recipes``,
    one recipe for both profiles or one for each. ``labels`` may be a mapping from a
    column to its values. Without ``name`` the task has that of the file. ``folder`` is
    relative to the folder of the file, and is that folder where neither ``folder`` nor
    ``hub`` is given.

    A text is what stands in the file: ``no`` and ``01`` are label words like others.
    The file is parsed and nothing in it is run: tags are refused.

    Args:
        path: A file that ends in ``.yaml`` or ``.yml``.

    Returns:
        The declaration.
    """
    document = document_of(path)
    spec, path = _spec(document), document.path
    folder = "" if spec.hub and not spec.folder else str(path.parent / spec.folder)
    return dataclasses.replace(spec, folder=folder)


def document_of(path: Any) -> Any:
    """Parses the single YAML document of a file."""
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(
            f"path: expected a file of {' or '.join(SUFFIXES)}, got {path}"
        )
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such declaration file")
    try:
        from icltheory.bridge.tasks._yaml import Document
    except ImportError as error:
        raise ImportError(
            "reading a declaration file needs the package pyyaml: "
            "pip install icltheory[llm]"
        ) from error
    return Document(path)


def _spec(document: Any) -> TaskSpec:
    given = document.items(document.root)
    own = _names(TaskRecipe)
    document.check_names(given, (*_names(TaskSpec), *own))
    beside = {name: given.pop(name) for name in own if name in given}
    node = given.pop("recipes", None)
    ready: dict[str, Any] = {}
    if node is None:
        ready["recipes"] = document.record(document.root, beside, TaskRecipe)
    else:
        for name, other in beside.items():
            document.refuse(other, f"{name}: expected inside recipes, got it outside")
        several = set(PROFILES) & document.items(node, "recipes").keys()
        form: Any = Mapping[str, TaskRecipe] if several else TaskRecipe
        ready["recipes"] = document.read(node, form, "recipes")
    if "name" not in given:
        ready["name"] = document.path.stem
    return document.record(document.root, given, TaskSpec, ready=ready)


def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))
