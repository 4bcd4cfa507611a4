"""Joins finished runs into one: their configs and their results."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tyro

from experiments._frame.extend import changes_between
from experiments._frame.tyro_line import read_line

Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True)
class JoinOptions:
    """Options of a command that joins runs.

    Attributes:
        runs: Folders of finished runs.
        output: Folder under which the joined run makes its own.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]] = ()
    output: Path = Path("runs")


def read_join_line(argv: list[str] | None, name: str, about: str) -> JoinOptions:
    """Parses the options of a command that joins runs.

    Raises:
        ValueError: if no run is named.
    """
    given = read_line(JoinOptions(), argv, name=name, about=about)
    if not given.runs:
        raise ValueError("runs: expected folders of finished runs, got none")
    return given


def common_config(
    folders: Sequence[Path],
    configs: Sequence[Config],
    without: Callable[[Config], Config],
    but: str,
) -> Config:
    """Returns the config that runs share; raises if any but the given fields differ.

    Args:
        folders: Where the configs come from.
        configs: The configs.
        without: A config with the fields that may differ set to one value.
        but: Those fields, in words.

    Raises:
        ValueError: if another field differs.
    """
    common = [without(config) for config in configs]
    for folder, config in zip(folders, common, strict=True):
        if config != common[0]:
            path, _, first, other = next(changes_between(common[0], config))
            raise ValueError(
                f"runs: expected configs that differ only in {but}, got {path} "
                f"{first!s:.40} in {folders[0]} and {other!s:.40} in {folder}"
            )
    return common[0]


def is_of_a_preset(
    config: Config, presets: Mapping[str, Config], without: Callable[[Config], Config]
) -> bool:
    """Whether a joined config equals a preset in all fields that must not differ."""
    return any(without(preset) == without(config) for preset in presets.values())


def from_result(folder: Path, read: Callable[[dict[str, Any]], Any]) -> Any:
    """Applies ``read`` to the ``result.json`` of a finished run.

    Raises:
        ValueError: if there is none, or ``read`` does not find what it looks for.
    """
    try:
        return read(json.loads((folder / "result.json").read_text()))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"runs: expected a finished run with a readable result.json, got {folder} "
            f"({type(error).__name__}: {error})"
        ) from error
