"""Reads task declarations from YAML files."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from icltheory.bridge.tasks.declare import PROFILES, TaskRecipe, TaskSpec

__all__ = ["SUFFIXES", "is_declaration_file", "read_task_spec"]

SUFFIXES = (".yaml", ".yml")


def is_declaration_file(name: Any) -> bool:
    """Whether a name is that of a declaration file, ``.yaml`` or ``.yml``.

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
    The file is parsed and nothing in it is run: tags have no effect.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        expected = f"expected a file of {' or '.join(SUFFIXES)}"
        raise ValueError(f"path: {expected}, got {path}")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such declaration file")
    tree = _parse(path)
    own = [each.name for each in fields(TaskRecipe)]
    try:
        _check_names(tree, [*(each.name for each in fields(TaskSpec)), *own])
        beside = {name: tree.pop(name) for name in own if name in tree}
        given = tree.pop("recipes", beside)
        if given is not beside and beside:
            raise ValueError(f"{min(beside)}: expected inside recipes, got it outside")
        if not isinstance(given, dict):
            raise ValueError(f"recipes: expected a mapping, got {given!r:.60}")
        if set(PROFILES) & given.keys():
            recipes = {name: _convert(one, TaskRecipe) for name, one in given.items()}
        else:
            recipes = _convert(given, TaskRecipe)
        if isinstance(tree.get("labels"), dict):
            tree["labels"] = list(tree["labels"].items())
        tree |= {"name": tree.get("name") or path.stem, "recipes": recipes}
        made = _convert(tree, _Written)
        folder = "" if made.hub and not made.folder else str(path.parent / made.folder)
        return TaskSpec(**vars(made) | {"folder": folder})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


class _Written(TaskSpec):
    """A declaration whose recipes have been read, so that errors name their fields."""

    recipes: Any


def _parse(path: Path) -> Any:
    """Reads YAML with texts for all scalars; a name may not be given twice."""
    try:
        import msgspec  # noqa: F401 - used once the file is parsed
        import yaml
    except ImportError as error:
        raise ImportError(
            "reading a declaration file needs the packages pyyaml and msgspec: "
            "pip install icltheory[llm]"
        ) from error

    class Loader(yaml.BaseLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict:
            found = super().construct_mapping(node, deep)
            if len(found) < len(node.value):
                said = f"two entries of a name among {', '.join(map(str, found))}"
                raise yaml.MarkedYAMLError(None, None, said, node.start_mark)
            return found

    try:
        return yaml.load(path.read_text("utf-8-sig"), Loader)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected UTF-8, got {error.reason}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        said = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ValueError(f"{path}{line}: expected YAML, got {said}") from None


def _convert(tree: Any, kind: Any) -> Any:
    """Builds a record from a mapping of texts; errors name the field."""
    import msgspec

    try:
        made = msgspec.convert(tree, kind, strict=False)
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at `$")
        place = place.strip(".`")
        said = said[0].lower() + said[1:]
        raise ValueError(f"{place}: {said}" if place else said) from None
    _check_unknown(tree, asdict(made))
    return made


def _check_unknown(given: Any, made: Any, front: str = "") -> None:
    """Raises for names of a tree that the record made of it does not have."""
    if isinstance(given, dict):
        _check_names(given, made, front)
        for name, value in given.items():
            _check_unknown(value, made[name], f"{front}{name}.")
    elif isinstance(given, list):
        for value, other in zip(given, made, strict=True):
            _check_unknown(value, other, front)


def _check_names(given: Any, known: Any, front: str = "") -> None:
    if not isinstance(given, dict):
        raise ValueError(f"expected a mapping of fields, got {given!r:.60}")
    for name in given:
        if name not in known:
            listed = ", ".join(known)
            raise ValueError(f"{front}{name}: expected a field among {listed}")
