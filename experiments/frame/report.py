"""The report of a run: numbers, checks, claims, tables and figures, and its page."""

import base64
import copy
import dataclasses
import html
import json
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

    from experiments.frame.command_line import Launch

SVG_BYTES = 400_000  # a larger figure is a PNG on the page


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
            console.print(self.claims_table(checked))
        for line in self.outcomes(checked):
            console.print(line)

    def claims_table(self, checked: bool = True) -> Table:
        """The claims, what was measured and whether they held."""
        of = "" if checked else " (for a config that is no preset)"
        table = Table("claim", "measured", "held", title=f"{self.claims_title}{of}")
        for one in self.claims:
            held = "[green]yes[/]" if one.held else "[red]no[/]"
            table.add_row(one.claim, one.measured, held)
        return table

    def outcomes(self, checked: bool) -> Iterator[str]:
        """A line for each check."""
        for one in self.checks:
            verdict = "[green]pass[/]" if one.passed else "[red]FAIL[/]"
            sign = "-" if one.tolerance < 0 else "+-"
            yield (
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


def page(folder: Path, report: Report, launch: "Launch") -> str:
    """Returns ``report.html``, which shows all without other files."""
    stored = json.loads((folder / "config.json").read_text())
    seconds = json.loads((folder / "timing.json").read_text())["seconds"]
    stored["seconds"] = {name: round(value, 1) for name, value in seconds.items()}
    checked, text = launch.unmodified, {"resume": launch.continuing(folder)}
    for key in ("experiment", "preset", "about", "command"):
        text[key] = stored.pop(key, "")
    text["verdict"] = report.verdict(checked)
    text["meaning"] = {
        "passed": "All checks passed.",
        "failed": "A check failed.",
        "not applicable": "The checks are made for unmodified presets; these numbers "
        "belong to another config.",
    }[text["verdict"]]
    where = f"docs/experiments/{text['experiment']}.md"
    known = (Path(__file__).parents[2] / where).exists()
    config = _fields(stored.pop("config"), launch.presets.get(text["preset"]))
    text["preset"] += "" if checked else ", changed"
    said: list[Table | str] = [report.claims_table(checked)] if report.claims else []
    said += [f"- {line}" for line in report.findings]
    results = [*report.outcomes(checked), *report.tables]
    template = string.Template(Path(__file__).with_name("page.html").read_text())
    return template.substitute(
        {key: html.escape(value) for key, value in text.items()},
        documented=f"It is described in <code>{where}</code>. " if known else "",
        claims=_section("Claims and findings", map(_html, said)),
        figures=_section("Figures", _figures(folder, report)),
        results=_section("Checks and tables", map(_html, results)),
        config=_html(config),
        stored=_html(_fields(stored)),
    )


def _section(title: str, parts: Iterable[str]) -> str:
    return f"<h2>{title}</h2>\n{body}" if (body := "\n".join(parts)) else ""


def _html(one: Table | str) -> str:
    """A line or a table as HTML; table rows that have a style are marked."""
    if isinstance(one, str):
        return f"<p class=line>{html.escape(_plain(one))}</p>"
    data = as_data(one)
    lines = [f"<h3>{html.escape(data['title'])}</h3><div class=wide><table>"]
    looks = ["", *(" class=marked" if row.style else "" for row in one.rows)]
    for look, cells in zip(looks, [data["columns"], *data["rows"]], strict=True):
        kind = "td" if lines[1:] else "th"
        inside = f"</{kind}><{kind}>".join(map(html.escape, cells))
        lines.append(f"<tr{look}><{kind}>{inside}</{kind}></tr>")
    return "\n".join([*lines, f"</table></div><p>{html.escape(data['caption'])}</p>"])


def _figures(folder: Path, report: Report) -> Iterator[str]:
    """The figures of the report in its order, then others of the run's folder."""
    others = sorted(path.name for path in folder.glob("*.png"))
    for name in dict.fromkeys([*report.figures, *others]):
        path, figure = folder / name, report.figures.get(name)
        words, kind = html.escape(path.stem.replace("_", " ")), "png"
        caption = words if figure is None else html.escape(_title(figure)) or words
        vector = path.with_suffix(".svg")
        if vector.exists() and vector.stat().st_size < SVG_BYTES:
            path, kind = vector, "svg+xml"
        data = base64.b64encode(path.read_bytes()).decode()
        image = f'<img alt="{words}" src="data:image/{kind};base64,{data}">'
        yield f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _title(figure: "Figure") -> str:
    """The title of a figure, its formulas in plain letters."""
    panels = [title for axes in figure.axes if (title := axes.get_title())]
    title = figure.get_suptitle() or (panels[0] if len(panels) == 1 else "")
    return re.sub(r"[${}]|\\mathrm|\\(?=\w)", "", title.replace(r"\|", "||"))


def _fields(stored: dict[str, Any], preset: Any = None) -> Table:
    """A table of stored values, which begins with what differs from a preset."""
    found, table, changed = _leaves(stored), Table("field", "value"), {}
    if preset is not None:
        usual = _leaves(json.loads(json.dumps(dataclasses.asdict(preset))))
        changed = {k: usual.get(k, "-") for k in found if found[k] != usual.get(k)}
        table.title = f"{len(changed)} of {len(found)} fields differ from the preset"
        table.add_column("value in the preset")
    for key in changed | found:
        was = [Text(changed[key])] if key in changed else []
        table.add_row(key, Text(found[key]), *was, style="bold" if was else None)
    return table


def _leaves(value: Any, at: str = "") -> dict[str, str]:
    """The values of nested dictionaries, as text, by their paths."""
    if not isinstance(value, dict) or not value:
        return {at: value if isinstance(value, str) else json.dumps(value)}
    parts = (_leaves(one, f"{at}.{key}".lstrip(".")) for key, one in value.items())
    return {path: leaf for part in parts for path, leaf in part.items()}
