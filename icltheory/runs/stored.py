"""Stored runs: their settings and numbers, a list, a comparison."""

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from icltheory.runs.tables import flat, frame_of, number, to_columns


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A stored run.

    Args:
        about: What ``config.json`` says: ``experiment``, ``preset``, ``config``, ...
        result: What ``result.json`` says; empty while there is none.

    Example:
        >>> run = load("runs/garg_linear/20261126-181726")  # doctest: +SKIP
        >>> run.frame("curves").query("curve == 'ridge (1)'")  # doctest: +SKIP
    """

    folder: Path
    about: dict[str, Any]
    result: dict[str, Any]

    @property
    def name(self) -> str:
        """``EXPERIMENT/STAMP``."""
        return f"{self.about['experiment']}/{self.folder.name}"

    @property
    def config(self) -> dict[str, Any]:
        """The configuration; names of nested fields are joined by dots."""
        return flat(self.about["config"])

    @property
    def verdict(self) -> str:
        """``"passed"``, ``"failed"``, ``"not applicable"`` or ``"not ended"``.

        The checks of a run apply to unmodified presets.
        """
        return self.result.get("verdict", "not ended")

    @property
    def seconds(self) -> float | None:
        """Wall time of all phases, where it was stored."""
        path = self.folder / "timing.json"
        if not path.is_file():
            return None
        return float(sum(_read(path)["seconds"].values()))

    @property
    def measured(self) -> dict[str, float]:
        """What each check of the run measured."""
        checks = self.result.get("checks", [])
        return {one["name"]: number(one["measured"]) for one in checks}

    def columns(self, name: str) -> dict[str, list[Any]]:
        """Numbers of the result as columns of one length.

        ``name`` is a field of ``result.json``, dotted where it is nested, such as
        ``"curves"``; or ``"metrics"``, what was recorded while it ran. Curves by name
        become rows with the curve's name and the place on its axis.
        """
        if name == "metrics":
            return _columns(_records(self.folder / "metrics.jsonl"))
        if not self.result:
            raise ValueError(
                f"name: expected 'metrics', since {self.name} has no result.json "
                f"(it has not ended), got {name!r}"
            )
        value: Any = self.result
        for part in name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                fields = [*value] if isinstance(value, Mapping) else ["no fields"]
                known = ", ".join(["metrics"] * (value is self.result) + fields)
                raise ValueError(f"name: expected one of {known}, got {part!r}")
            value = value[part]
        if isinstance(value, list):
            rows = value if value and isinstance(value[0], Mapping) else None
            return _columns(rows or [{name: one} for one in value])
        if not isinstance(value, Mapping):
            return {name: [_number(value)]}
        return _columns(list(_rows(value, name.rpartition(".")[2], self._axis(name))))

    def frame(self, name: str, library: str = "pandas") -> Any:
        """The same as a data frame of pandas or polars."""
        return frame_of(self.columns(name), library)

    def _axis(self, name: str) -> str:
        axes = self.result.get("axes", {})
        found = [axes[key] for key in axes if key.partition(".*")[0] == name]
        return found[0][0].partition(",")[0] if found and found[0] else "index"

    def __repr__(self) -> str:
        return f"Run({self.name}, {self.verdict})"


def load(folder: str | os.PathLike) -> Run:
    """Reads a run; a file that is no JSON is named, and left as it is."""
    path = Path(folder)
    if not (path / "config.json").is_file():
        raise FileNotFoundError(f"{path}: expected a run's folder, with config.json")
    about, result = _read(path / "config.json"), path / "result.json"
    return Run(path, about, _read(result) if result.is_file() else {})


def find(root: str | os.PathLike = "runs", experiment: str = "*") -> list[Run]:
    """All runs below a folder, of one experiment or of all, the newest last.

    Among them are those of Slurm jobs and arrays, which are in ``slurm`` below it.
    """
    places = "", "slurm/*/", "slurm/*/*/"
    globs = [Path(root).glob(f"{at}{experiment}/*/config.json") for at in places]
    found = [path.parent for paths in globs for path in paths]
    return [load(path) for path in sorted(found, key=lambda path: path.name)]


def compare(first: Run, second: Run) -> list[dict[str, Any]]:
    """Settings that differ between two runs, and all that their checks measured.

    Rows have ``what``, ``first`` and ``second``; what one of them lacks is ``None``.
    """
    for name, given in (("first", first), ("second", second)):
        if not isinstance(given, Run):
            raise ValueError(f"{name}: expected a Run of load(folder), got {given!r}")

    def pairs(a, b):
        for name in dict.fromkeys([*a, *b]):
            yield {"what": name, "first": a.get(name), "second": b.get(name)}

    settings = pairs(first.config, second.config)
    differing = [row for row in settings if row["first"] != row["second"]]
    return [*differing, *pairs(first.measured, second.measured)]


def summary(run: Run, most: int | None = None) -> tuple[str, ...]:
    """Name, preset and further settings, verdict, time, and what was measured."""
    words = run.about.get("command", "").split(run.about["experiment"], 1)[-1].split()
    preset = run.about.get("preset", "")
    no_setting = rf"--preset {preset}|--output \S+|--quiet"
    said = re.sub(no_setting, "", " ".join(words)).strip()
    spent = "" if run.seconds is None else f"{run.seconds:.0f} s"
    some = list(run.measured.items())[:most]
    measured = ", ".join(f"{name}: {value:#.4g}" for name, value in some)
    return run.name, f"{preset} {said}".strip(), run.verdict, spent, measured


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from None


def _records(path: Path) -> list[Any]:
    """The records of a file with one in each line; none without a file."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    *lines, last = text.splitlines() or [""]
    found = [json.loads(line) for line in lines]
    with contextlib.suppress(ValueError):  # the last line may not be written whole
        found.append(json.loads(last))
    return found


def _rows(value: Mapping[str, Any], name: str, axis: str) -> Iterator[dict[str, Any]]:
    """Rows of nested results: names of the levels, places on the axis, numbers."""
    lists = {key: one for key, one in value.items() if isinstance(one, list)}
    nested = {key: one for key, one in value.items() if isinstance(one, Mapping)}
    plain = {key: one for key, one in value.items() if key not in lists | nested}
    sizes = {len(one) for one in lists.values()}
    if len(sizes) == 1:
        for place in range(sizes.pop()):
            at = {key: one[place] for key, one in lists.items()}
            yield {axis: place} | plain | at
    elif plain or lists:
        yield plain | lists
    for key, one in nested.items():
        for row in _rows(one, name, axis):
            yield {name.removesuffix("s"): key} | row


def _columns(rows: list[Any]) -> dict[str, list[Any]]:
    return {key: list(map(_number, cells)) for key, cells in to_columns(rows).items()}


def _number(value: Any) -> Any:
    words = isinstance(value, str) and value in ("Infinity", "-Infinity")
    return number(value) if words else value
