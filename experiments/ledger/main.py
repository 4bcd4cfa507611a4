"""Runs the tests of the statements, stores what they measure, and writes the page."""

import argparse
import collections
import functools
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from rich.console import Console

from experiments.ledger.formulas import markdown
from experiments.ledger.statements import (
    ROOT,
    STATEMENTS,
    STATUSES,
    Statement,
    checked_by,
    claimed,
    unknown_names,
    without_mark,
)

PAGE = "docs/reference/ledger.md"
STORED = "experiments/ledger/measured.json"
_ABOUT = (
    "Every numbered statement of the papers, with its status: what it says, the form "
    "or condition under which it holds, the evidence, the functions and the tests."
)
_NOTES = (
    "Evidence is the strongest kind there is for what the row says: *proof*, written "
    "out on the page that is linked; *symbolic* algebra; *exact arithmetic*; "
    "*numerical* agreement to the tolerance of the test; *simulation*, with its noise; "
    "or *none*. Only the first shows a statement for all cases. Behind it are linked "
    "the pages of experiments with stored results.",
    "Formulas are those of the papers; 1 in a sum of matrices is the identity, and a "
    "prime marks tests (Li) or another update (Yao).",
    "A file is followed by the number of its tests, an outcome by the number of cases "
    "that passed. A number is the largest in absolute value over those cases. "
    "A z is a difference in standard errors; five is where a test fails. Numbers near "
    "1e-16 are rounding and differ by machine.",
)


# --- what is measured


class Case(NamedTuple):
    """Outcome of a test with one set of parameters, and the numbers it recorded."""

    outcome: str  # passed, failed or skipped
    measured: list[tuple[str, float]]


class Row(NamedTuple):
    """What the tests of one statement showed."""

    verdict: str  # passed, FAILED, not run or no test
    cases: int  # that passed, or that failed where some did
    measured: list[tuple[str, float, int]]  # name, largest value, of how many

    @property
    def outcome(self) -> str:
        """The verdict with the number of test cases."""
        return f"{self.verdict} ({self.cases})" if self.cases else self.verdict

    def numbers(self) -> Iterator[str]:
        """Formats each number with the count that it is the largest of."""
        for name, value, count in self.measured:
            text = f"{name}: {value:.3g}"
            yield f"{text} (largest of {count})" if count > 1 else text


def run_tests(
    files: Iterable[str], root: Path, *, quick: bool, processes: str | None = None
) -> tuple[dict[str, Case], str]:
    """Returns the cases of a run of pytest, and what it printed unless all passed."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short"]
        command += [f"--junitxml={record}", "-m", "statement" + " and not slow" * quick]
        command += [f"--numprocesses={processes}"] if processes else []
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run([*command, *files], cwd=root, text=True, **streams)
        found = ElementTree.parse(record).iter("testcase") if record.is_file() else ()
        cases = dict(_case(element) for element in found if element.get("classname"))
    return cases, done.stdout if done.returncode else ""


def _case(element: ElementTree.Element) -> tuple[str, Case]:
    file = element.get("classname", "").replace(".", "/")
    kinds = {child.tag for child in element}
    skipped = "skipped" if "skipped" in kinds else "passed"
    outcome = "failed" if kinds & {"failure", "error"} else skipped
    numbers = ((p.get("name"), p.get("value")) for p in element.iter("property"))
    measured = [(str(name), float(value or "nan")) for name, value in numbers]
    return f"{file}.py::{element.get('name')}", Case(outcome, measured)


def make_rows(
    statements: Sequence[Statement], cases: dict[str, Case], root: Path
) -> dict[str, Row]:
    """Joins the cases of each statement, by its name."""
    ran: dict[str, dict[str, Case]] = collections.defaultdict(dict)
    for node, case in sorted(cases.items()):
        for name in checked_by(node, root):
            ran[name][node] = case
    return {s.name: _row(ran[s.name], bool(claimed(s, root))) for s in statements}


def _row(ran: dict[str, Case], has_test: bool) -> Row:
    counts = collections.Counter(case.outcome for case in ran.values())
    if not has_test:
        verdict, cases = "no test", 0
    elif counts["failed"]:
        verdict, cases = "FAILED", counts["failed"]
    else:
        verdict, cases = "passed" if counts["passed"] else "not run", counts["passed"]
    numbers: dict[tuple[str, str], list[float]] = {}
    for node, case in ran.items():
        for name, value in case.measured:
            numbers.setdefault((node.split("[")[0], name), []).append(value)
    largest = functools.partial(max, key=lambda v: (math.isnan(v), abs(v)))
    measured = [(n, largest(v), len(v)) for (_, n), v in numbers.items()]
    return Row(verdict, cases, measured)


# --- what is shown


def summary(statements: Sequence[Statement], rows: dict[str, Row]) -> str:
    """Counts the statements by status, evidence and verdict, as text."""
    kinds = [(s.status, s.evidence, rows[s.name].verdict) for s in statements]
    status, evidence, verdict = (
        ", ".join(f"{n} {kind}" for kind, n in collections.Counter(own).most_common())
        for own in zip(*kinds, strict=True)
    )
    return (
        f"{len(statements)} statements: {status}; evidence: {evidence}; "
        f"tests: {verdict}"
    )


def page(
    statements: Sequence[Statement], rows: dict[str, Row], measured: str, root: Path
) -> str:
    """The page in Markdown, whose links are those of a page in docs/reference."""
    lines = ["---", "hide-toc: true", "---", "", "# The ledger", ""]
    legend = "; ".join(f"*{word}* {means}" for word, means in STATUSES.items())
    for paragraph in (
        _ABOUT,
        f"{summary(statements, rows)}. {measured} This page is generated by "
        "`python -m experiments.ledger`.",
        f"Status: {legend}.",
        *_NOTES,
    ):
        lines += [paragraph, ""]
    heads = ("statement", "says", "status", "evidence", "corrected form")
    heads += ("function", "test", "measured")
    for paper in dict.fromkeys(said.paper for said in statements):
        lines += [f"## {paper}", "", _line(heads), "|---" * len(heads) + "|"]
        own = (said for said in statements if said.paper == paper)
        lines += [_line(_cells(said, rows[said.name], root)) for said in own] + [""]
    return "\n".join(lines)


def _cells(said: Statement, row: Row, root: Path) -> list[str]:
    files = collections.Counter(test.split("::")[0] for test in claimed(said, root))
    tests = (f"[`{Path(f).name}`](../../{f}) ({n})" for f, n in files.items())
    pages = ", ".join(
        f"[{name}](../experiments/{name}.md)" for name in said.experiments
    )
    kind, _, section = said.proof.partition("#")
    proof = f"[proof](derivations/{kind}.md#{section})" if kind else said.evidence
    return [
        markdown(said.label),
        markdown(said.says),
        said.status,
        f"{proof}: {pages}" if pages else proof,
        markdown(said.corrected),
        "<br>".join(f"`{name}`" for name in said.functions),
        "<br>".join(tests) or "none",
        "<br>".join([row.outcome, *map(markdown, row.numbers())]),
    ]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


# --- the program


def stored(statements: Sequence[Statement], root: Path) -> tuple[str, dict[str, Row]]:
    """Reads when the stored numbers were measured, and the row of each statement."""
    kept = json.loads((root / STORED).read_text())
    rows = {}
    for said in statements:
        verdict, cases, numbers = kept["rows"].get(said.name, ("not run", 0, ()))
        measured = [(what, float(value), count) for what, value, count in numbers]
        rows[said.name] = Row(verdict, cases, measured)
    return kept["measured"], rows


def _store(path: Path, measured: str, rows: dict[str, Row]) -> None:
    lines = []
    for name, row in rows.items():
        numbers = [(what, f"{value:.6g}", n) for what, value, n in row.measured]
        kept = json.dumps((row.verdict, row.cases, numbers))
        lines.append(f"{json.dumps(name)}: {kept}")
    text = ",\n".join(lines)
    _write(path, f'{{"measured": {json.dumps(measured)}, "rows": {{\n{text}\n}}}}\n')


def _write(path: Path, text: str) -> None:
    """Writes a whole file or none."""
    aside = path.with_name(f".writing_{path.name}")
    try:
        aside.write_text(text)
        os.replace(aside, path)
    except OSError as error:
        raise ValueError(
            f"output: expected a file that can be written, got {path} "
            f"({error.strerror})"
        ) from error
    finally:
        aside.unlink(missing_ok=True)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.ledger",
        description="Runs the tests of all statements and writes the ledger's page.",
    )
    parser.add_argument("--output", type=Path, help=f"the page (default: {PAGE})")
    parser.add_argument("--quick", action="store_true", help="run the quick tests only")
    parser.add_argument(
        "--page", action="store_true", help="write the page from the stored numbers"
    )
    parser.add_argument("--processes", help="processes that run the tests, or auto")
    return parser.parse_args(argv)


def main(
    argv: Sequence[str] | None = None,
    statements: tuple[Statement, ...] = STATEMENTS,
    root: Path = ROOT,
) -> int:
    """Returns 1 if a test failed, could not be run, or belongs to no statement."""
    options = _options(argv)
    output = options.output or root / PAGE
    if not output.parent.is_dir():
        raise ValueError(f"output: expected a file in a folder, got {output}")
    if options.page:
        when, rows = stored(statements, root)
        _write(output, page(statements, rows, when, root))
        return 0
    console = Console()
    start = time.perf_counter()
    files = {test.split("::")[0] for s in statements for test in claimed(s, root)}
    with console.status("running the tests of the statements"):
        cases, failures = run_tests(
            sorted(files), root, quick=options.quick, processes=options.processes
        )
    seconds = time.perf_counter() - start
    rows = make_rows(statements, cases, root)
    when = (
        f"Measured on {date.today():%Y-%m-%d}{' (quick tests)' * options.quick}: "
        f"{len(cases)} tests in {seconds:.0f} s on {os.cpu_count()} cores, "
        # Versions are read by package name, so that the ledger loads no library.
        f"jax {version('jax')}, Python {platform.python_version()}, float64."
    )
    if options.output is None:
        _store(root / STORED, when, rows)
    _write(output, page(statements, rows, when, root))
    lines = [f"{n}: {r.outcome}" for n, r in rows.items() if r.verdict != "passed"]
    lost = [f"no statement: {name}" for name in without_mark(root)]
    lost += [f"unknown statement: {name}" for name in unknown_names(statements, root)]
    for line in (*lines, *lost, failures):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(f"{summary(statements, rows)}\n{seconds:.0f} s", highlight=False)
    if failures:
        console.print("some tests failed or could not be run", style="bold red")
    return int(bool(failures or lost))
