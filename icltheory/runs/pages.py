"""Stored runs as a page with a table of all, and as curves for TensorBoard."""

import html
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from icltheory.runs.stored import Run, find, summary
from icltheory.runs.tables import number

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Runs</title>
<meta name="viewport" content="width=device-width">
<style>:root {{ color-scheme: light dark }} div {{ overflow-x: auto }}
body {{ font: 15px sans-serif; margin: 2em }} td, th {{ padding: .3em .8em;
text-align: left; vertical-align: top; border-bottom: 1px solid #8885 }}
td:nth-child(5) {{ min-width: 18em }} polyline {{ fill: none;
stroke: #1f77b4; stroke-width: 1.5 }}</style>
<h1>Runs</h1>
<div><table>
<tr><th>run<th>preset and settings<th>verdict<th>time<th>measured<th>loss</tr>
{}
</table></div>
"""


def write_index(root: str | os.PathLike = "runs") -> Path:
    """Writes ``index.html`` with a table of all runs below a folder."""
    path, lines = Path(root) / "index.html", []
    for run in reversed(find(root)):
        name, *cells = map(html.escape, summary(run))
        report = run.folder.relative_to(root) / "report.html"
        link = f'<a href="{html.escape(report.as_posix())}">{name}</a>'
        inner = "".join(f"<td>{one}</td>" for one in (link, *cells, _small_curve(run)))
        lines.append(f"<tr>{inner}</tr>")
    aside = path.with_name(".writing_index.html")
    aside.write_text(_PAGE.format("\n".join(lines)), encoding="utf-8")
    os.replace(aside, path)
    return path


def _small_curve(run: Run) -> str:
    """The recorded loss as a small picture, or nothing."""
    recorded = run.columns("metrics").get("loss", [])
    each = [number(v if isinstance(v, list) else [v]) for v in recorded]
    finite = [[x for x in seeds if math.isfinite(x)] for seeds in each]
    # The mean over seeds, of which some may have diverged.
    values = [sum(seeds) / len(seeds) for seeds in finite if seeds]
    if len(values) < 2 or max(values) == min(values):
        return ""
    low, span = min(values), max(values) - min(values)
    points = " ".join(
        f"{120 * i / (len(values) - 1):.1f},{28 - 26 * (value - low) / span:.1f}"
        for i, value in enumerate(values)
    )
    return f'<svg width="120" height="30"><polyline points="{points}"/></svg>'


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
