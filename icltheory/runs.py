"""Runs of experiments that were stored: their numbers, a list, a comparison.

A run is a folder ``runs/NAME/STAMP`` with ``config.json`` and, once it has ended,
``result.json``. Nothing here needs the code of the experiment.

Stability: provisional.
"""

import dataclasses
import html
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from icltheory.frames import to_frame
from icltheory.strict_json import number

__all__ = ["Run", "compare", "find", "load", "summary", "write_index"]
__all__ += ["write_tensorboard"]


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A stored run.

    Args:
        folder: Where it is.
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
        return dict(_leaves(self.about["config"]))

    @property
    def verdict(self) -> str:
        """``"passed"``, ``"failed"``, or ``"not ended"`` without a result."""
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
            path = self.folder / "metrics.jsonl"
            lines = path.read_text().splitlines() if path.is_file() else []
            return _columns([json.loads(line) for line in lines])
        value: Any = self.result
        for part in name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                known = ", ".join(value) if isinstance(value, Mapping) else "no fields"
                raise ValueError(f"name: expected one of {known}, got {part!r}")
            value = value[part]
        if isinstance(value, list):
            rows = value if value and isinstance(value[0], Mapping) else None
            return _columns(rows or [{name: one} for one in value])
        if not isinstance(value, Mapping):
            return {name: [_number(value)]}
        return _columns(list(_rows(value, name.rpartition(".")[2], self._axis(name))))

    def frame(self, name: str, library: str | None = None) -> Any:
        """The same as a data frame of pandas or polars."""
        columns = self.columns(name)
        size = len(next(iter(columns.values()), []))
        rows = [{key: one[i] for key, one in columns.items()} for i in range(size)]
        return to_frame(rows, library)

    def _axis(self, name: str) -> str:
        axes = self.result.get("axes", {})
        found = [axes[key] for key in axes if key.partition(".*")[0] == name]
        return found[0][-1].partition(",")[0] if found and found[0] else "index"

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
    """All runs below a folder, of one experiment or of all, the newest last."""
    found = [path.parent for path in Path(root).glob(f"{experiment}/*/config.json")]
    return [load(path) for path in sorted(found, key=lambda path: path.name)]


def compare(first: Run, second: Run) -> list[dict[str, Any]]:
    """Settings that differ between two runs, and all that their checks measured.

    Rows have ``what``, ``first`` and ``second``; what one of them lacks is ``None``.
    """

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
    said = re.sub(rf"--preset {preset}|--output \S+", "", " ".join(words)).strip()
    spent = "" if run.seconds is None else f"{run.seconds:.0f} s"
    some = list(run.measured.items())[:most]
    measured = ", ".join(f"{name} {value:.4g}" for name, value in some)
    return run.name, f"{preset} {said}".strip(), run.verdict, spent, measured


def write_index(root: str | os.PathLike = "runs") -> Path:
    """Writes ``index.html`` with a table of all runs below a folder."""
    path, lines = Path(root) / "index.html", []
    for run in reversed(find(root)):
        name, *cells = map(html.escape, summary(run))
        link = f'<a href="{name}/report.html">{name}</a>'
        inner = "".join(f"<td>{one}</td>" for one in (link, *cells, _small_curve(run)))
        lines.append(f"<tr>{inner}</tr>")
    aside = path.with_name(".writing_index.html")
    aside.write_text(_PAGE.format("\n".join(lines)), encoding="utf-8")
    os.replace(aside, path)
    return path


def write_tensorboard(
    root: str | os.PathLike = "runs", written: dict[Path, int] | None = None
) -> dict[Path, int]:
    """Writes what runs recorded as event files of TensorBoard, in their folders.

    Returns the number of records written of each run. Called again with it, only what
    is new is added, so that a loop follows runs that have not ended. Curves of several
    seeds get their number as a suffix. Needs the package ``tensorboardX``.
    """
    writer_of = _event_writer()
    found = dict(written or {})
    for run in find(root):
        path, known = run.folder / "metrics.jsonl", found.get(run.folder, 0)
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        # A last line without its end is still being written.
        lines = text[: text.rfind("\n") + 1].splitlines()
        if len(lines) <= known:
            continue
        target = run.folder / "tensorboard"
        if not known:  # what an earlier call wrote would be shown twice
            shutil.rmtree(target, ignore_errors=True)
        with writer_of(str(target), filename_suffix=f".{known}") as writer:
            for place, line in enumerate(lines[known:], known):
                record = json.loads(line)
                for name, value in _scalars(record):
                    writer.add_scalar(name, value, record.get("step", place))
        found[run.folder] = len(lines)
    return found


def _event_writer() -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise ImportError(
            "tensorboardX: not installed; run pip install 'icltheory[tensorboard]'"
        ) from None
    return SummaryWriter


def _scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    front = f"{record['model']}/" if "model" in record else ""
    for name, value in record.items():
        values = value if isinstance(value, list) else [value]
        for place, one in enumerate(values):
            if name != "step" and isinstance(one, int | float):
                yield f"{front}{name}" + f"/{place}" * (len(values) > 1), float(one)


_PAGE = """<!doctype html>
<meta charset="utf-8"><title>Runs</title>
<style>:root {{ color-scheme: light dark }}
body {{ font: 15px sans-serif; margin: 2em }} td, th {{ padding: .3em .8em;
text-align: left; border-bottom: 1px solid #8885 }} polyline {{ fill: none;
stroke: #1f77b4; stroke-width: 1.5 }}</style>
<h1>Runs</h1>
<table><tr><th>run<th>preset and settings<th>verdict<th>time<th>measured<th>loss</tr>
{}
</table>
"""


def _small_curve(run: Run) -> str:
    """The recorded loss as a small picture, or nothing."""
    recorded = run.columns("metrics").get("loss", [])
    each = [v if isinstance(v, list) else [v] for v in recorded if v is not None]
    values = [sum(seeds) / len(seeds) for seeds in each]  # the mean over seeds
    if len(values) < 2 or max(values) == min(values):
        return ""
    low, span = min(values), max(values) - min(values)
    points = " ".join(
        f"{120 * i / (len(values) - 1):.1f},{28 - 26 * (value - low) / span:.1f}"
        for i, value in enumerate(values)
    )
    return f'<svg width="120" height="30"><polyline points="{points}"/></svg>'


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from None


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield path, value
        return
    for name, part in value.items():
        yield from _leaves(part, f"{path}.{name}" if path else name)


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
    names = dict.fromkeys(key for row in rows for key in row)
    return {key: [_number(row.get(key)) for row in rows] for key in names}


def _number(value: Any) -> Any:
    words = isinstance(value, str) and value in ("Infinity", "-Infinity")
    return number(value) if words else value
