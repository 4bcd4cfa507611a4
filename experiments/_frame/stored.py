"""Reads the config of a run folder, and finds the experiment of a config."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, TypeVar

Config = TypeVar("Config")


def experiment_of(config: Any) -> tuple[str, str]:
    """Returns name and first docstring line of the experiment that defines a config."""
    module = type(config).__module__
    name, where = ".".join(module.split(".")[:2]), module
    if module == "__main__":  # an experiment of one file, as a program
        name = getattr(sys.modules[module].__spec__, "name", module)
    else:
        where = name
    text = getattr(sys.modules.get(where), "__doc__", None) or ""
    return name.rpartition(".")[2], text.partition("\n")[0]


def read_config(run: Path, example: Config) -> Config:
    """Reads the config of a run folder; ``example`` is a config of that experiment.

    A field that came after the run was begun has its default, and stderr says so.
    """
    path, added = run / "config.json", {}
    try:
        stored = json.loads(path.read_text())
        _check_experiment(stored, example)
        config = _build(type(example), stored["config"], added)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"expected a run folder with a readable config.json, got {run} "
            f"({type(error).__name__}: {error})"
        ) from error
    if added:
        defaults = ", ".join(f"{name} = {value}" for name, value in added.items())
        print(f"warning: {path} lacks newer fields: {defaults}", file=sys.stderr)
    return config


def _check_experiment(stored: dict[str, Any], example: Any) -> None:
    """Raises if a run belongs to another experiment than the config."""
    own, found = experiment_of(example)[0], stored.get("experiment")
    if found not in (None, own):
        raise ValueError(f"it is a run of {found}, not of {own}")


def _build(kind: Any, values: Any, added: dict[str, Any], at: str = "") -> Any:
    """Rebuilds nested frozen dataclasses from the values stored in JSON.

    Fields that it does not have get their defaults, which ``added`` collects.
    """
    if not dataclasses.is_dataclass(kind):
        return tuple(values) if isinstance(values, list) else values
    fields = {field.name: field for field in dataclasses.fields(kind)}
    gone = sorted(set(values) - set(fields))
    if gone:
        raise ValueError(f"unknown fields in the stored config: {_names(at, gone)}")
    bare = [n for n in fields if n not in values and not _has_default(fields[n])]
    if bare:
        lacking = _names(at, bare)
        raise ValueError(f"the stored config lacks fields without a default: {lacking}")
    found = kind(
        **{
            name: _build(fields[name].type, value, added, f"{at}{name}.")
            for name, value in values.items()
        }
    )
    new = [name for name in fields if name not in values]
    added |= {f"{at}{name}": getattr(found, name) for name in new}
    return found


def _has_default(field: dataclasses.Field) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


def _names(at: str, names: list[str]) -> str:
    return ", ".join(f"{at}{name}" for name in names)
