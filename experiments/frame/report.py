"""The report of a run: numbers, checks, claims, tables and figures, and its page."""

import base64
import copy
import dataclasses
import html
import io
import json
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from experiments.frame.config import expect

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Check:
    """A measured number and the reference it is compared with.

    The relation is ``"<="``, with the tolerance as slack, or ``"within"`` it.
    """

    name: str
    measured: float
    reference: float
    relation: str
    tolerance: float = 0.0

    def __post_init__(self):
        # NumPy numbers would produce NumPy booleans, which JSON cannot store.
        for name in ("measured", "reference", "tolerance"):
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def passed(self) -> bool:
        """Whether the number satisfies the check."""
        if self.relation == "<=":
            return self.measured <= self.reference + self.tolerance
        return abs(self.measured - self.reference) <= self.tolerance

    def as_dict(self) -> dict[str, Any]:
        """The check and whether it passed, as a dictionary for JSON."""
        return {**dataclasses.asdict(self), "passed": self.passed}


def largest(values: Iterable[Any]) -> float:
    """Returns the maximum, or NaN if any value is NaN, unlike Python's ``max``."""
    return float(np.max([float(value) for value in values]))


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of a paper and what was measured; it does not affect the run's status."""

    claim: str
    measured: str
    held: bool | np.bool | np.ndarray
    expected: str = ""  # what one measures if the claim holds, where that needs words

    def __post_init__(self):
        # JSON cannot store NumPy booleans.
        object.__setattr__(self, "held", bool(self.held))


@dataclasses.dataclass(frozen=True)
class Report:
    """The results of a run: numbers, checks, claims, tables and figures."""

    numbers: Mapping[str, Any]  # of result.json, beside those of the other fields
    checks: Sequence[Check] = ()  # comparisons that decide whether the run passed
    # By file name, which ends with .png.
    figures: Mapping[str, "Figure"] = dataclasses.field(default_factory=dict)
    tables: Sequence[Table | str] = ()  # tables and lines to print, in order
    claims: Sequence[Claim] = ()  # of the papers, beside what was measured
    claims_title: str = "claims and measurements"
    findings: Sequence[str] = ()  # sentences that sum up the numbers
    # Of the intervals in numbers and figures; None where there are none or they differ.
    interval_level: float | None = None
    # What the indices of arrays among the numbers count, by their path, such as
    # {"curves.*.mean": ["examples k, from 0"]}.
    axes: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        wanted = "file names that end with .png"
        for name in self.figures:
            expect(name.endswith(".png"), "figures", wanted, repr(name))

    @property
    def passed(self) -> bool:
        """Whether all checks passed."""
        return all(check.passed for check in self.checks)

    def verdict(self, checked: bool = True) -> str:
        """Returns ``"passed"`` or ``"failed"``; ``"not applicable"`` unless checked."""
        if not checked:
            return "not applicable"
        return "passed" if self.passed else "failed"

    def print(self, console: Console, checked: bool = True) -> None:
        """Prints tables, findings, claims and checks, and whether checks passed."""
        for one in self.tables:
            for part in fitting(one, console) if isinstance(one, Table) else [one]:
                console.print(part)
        for line in self.findings:
            console.print(f"- {line}", highlight=False)
        if self.claims:
            claims = Table("claim", "measured", "held", title=self.claims_title)
            for one in self.claims:
                held = "[green]yes[/]" if one.held else "[red]no[/]"
                claims.add_row(one.claim, one.measured, held)
            console.print(claims)
        for one in self.checks:
            verdict = "[green]pass[/]" if one.passed else "[red]FAIL[/]"
            sign = "-" if one.tolerance < 0 else "+-"
            console.print(
                f"{verdict if checked else 'not applicable'}  {one.name}: "
                f"{one.measured:.4g} {one.relation} {one.reference:.4g} "
                f"({sign} {abs(one.tolerance):.4g})"
            )

    def as_dict(self) -> dict[str, Any]:
        """Returns the contents of ``result.json``."""
        optional = {
            "claims": [dataclasses.asdict(claim) for claim in self.claims],
            "findings": list(self.findings),
            "tables": [t if isinstance(t, str) else as_data(t) for t in self.tables],
            "axes": {path: list(axes) for path, axes in self.axes.items()},
        }
        checks = [check.as_dict() for check in self.checks]
        present = {name: value for name, value in optional.items() if value}
        return {"passed": self.passed, "checks": checks, **present, **self.numbers}


def as_data(table: Table) -> dict[str, Any]:
    """Returns title, column heads, rows and caption of a table as plain text."""
    return {
        "title": _plain(table.title or ""),
        "columns": [_plain(column.header) for column in table.columns],
        "rows": [list(row) for row in _rows(table)],
        "caption": _plain(table.caption or ""),
    }


def _rows(table: Table, count: int | None = None) -> list[tuple[str, ...]]:
    """Returns the rows of the first columns."""
    columns = (map(_plain, one.cells) for one in table.columns[:count])
    return list(zip(*columns, strict=True))


def _plain(cell: Any) -> str:
    return cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain


def fitting(table: Table, console: Console) -> list[Table]:
    """Splits a table that is too wide for the console into parts with fewer columns.

    Each part begins with the leading columns that tell the rows apart. No word is cut,
    unless it is wider than the console.
    """
    columns, rows, words, lines = table.columns, len(_rows(table)), [], []
    for column in columns:
        cells = (column.header, *column.cells)
        sizes = [Measurement.get(console, console.options, cell) for cell in cells]
        lines.append(max(size.maximum for size in sizes))
        words.append(max(size.minimum for size in sizes))
        words[-1] = lines[-1] if column.no_wrap else words[-1]
    leads = range(1, len(columns))
    lead = next((n for n in leads if len(set(_rows(table, n))) == rows), 1)
    parts = [[*range(lead)]]
    for place in range(lead, len(columns)):
        if len(parts[-1]) > lead and _spare(words, [*parts[-1], place], console) < 0:
            parts.append([*range(lead)])
        parts[-1].append(place)
    found = [copy.copy(table) for _ in parts]
    for part, places in zip(found, parts, strict=True):
        spare, widths = _spare(words, places, console), {at: words[at] for at in places}
        wraps = 0 <= spare < sum(lines[at] - words[at] for at in places)
        for _ in range(spare if wraps else 0):  # columns that lack most get the rest
            widths[max(places, key=lambda at: lines[at] - widths[at])] += 1
        part.columns = [
            dataclasses.replace(
                columns[at], _index=n, width=widths[at] if wraps else columns[at].width
            )
            for n, at in enumerate(places)
        ]
        part.title = part.title if part is found[0] else None
        part.caption = part.caption if part is found[-1] else None
    return found


def _spare(widths: list[int], places: list[int], console: Console) -> int:
    """The width that is left; beside a column are a border and two spaces."""
    return console.width - 1 - sum(3 + widths[at] for at in places)


def page(folder: Path, report: Report, checked: bool) -> str:
    """Returns ``report.html``: what was printed, figures, config, in no other file."""
    stored = json.loads((folder / "config.json").read_text())
    seconds = json.loads((folder / "timing.json").read_text())
    console = Console(record=True, file=io.StringIO(), width=130)
    report.print(console, checked)
    verdict = {
        "passed": "All checks passed.",
        "failed": "A check failed.",
        "not applicable": "The checks are made for unmodified presets; these numbers "
        "belong to another config.",
    }[report.verdict(checked)]
    figures = []
    for path in sorted(folder.glob("*.png")):
        data, name = base64.b64encode(path.read_bytes()), path.stem.replace("_", " ")
        image = f'<img alt="{name}" src="data:image/png;base64,{data.decode()}">'
        figures.append(f"<figure>{image}<figcaption>{name}</figcaption></figure>")
    text = {
        "name": stored.pop("experiment"),
        "preset": stored.pop("preset") + ("" if checked else ", changed"),
        "about": stored.pop("about", ""),
        "command": stored.pop("command", ""),
        "verdict": verdict,
        "stored": json.dumps(stored | seconds, indent=1),
    }
    return string.Template(
        Path(__file__).with_name("page.html").read_text()
    ).substitute(
        {name: html.escape(value) for name, value in text.items()},
        results=console.export_html(inline_styles=True, code_format="{code}"),
        figures="\n".join(figures),
    )
