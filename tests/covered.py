"""Which quick test covers what, measured.

Two commands make the table of every statement of the ledger, public function and
experiment with a quick test that runs it, and name the errors that no quick test
raises::

    uv run --group coverage pytest --cov --cov-context=test
    uv run --group coverage python -m tests.covered --output FILE

The exit status is 1 where a statement, function or experiment has no quick test.
"""

import argparse
import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from experiments.ledger.collect import is_claimed
from experiments.ledger.statements import STATEMENTS
from tests.test_public_api import TEST_FILE, public_objects

ROOT = Path(__file__).parents[1]


class Runs:
    """Tests that ran each line, from the data of coverage.py."""

    def __init__(self, path: Path):
        from coverage import CoverageData

        self.data = CoverageData(str(path))
        self.data.read()

    def of(self, path: Path, lines: Iterable[int]) -> list[str]:
        """Tests that ran any of these lines."""
        ran = self.data.contexts_by_lineno(str(path))
        found = {test for line in lines for test in ran.get(line, ()) if test}
        return sorted({test.rpartition("|")[0] or test for test in found})


def bodies(path: Path) -> Iterator[tuple[ast.FunctionDef, range]]:
    """Functions and methods of a file with the lines behind their docstrings."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            first = node.body[0]
            if ast.get_docstring(node) is not None and len(node.body) > 1:
                first = node.body[1]
            yield node, range(first.lineno, node.end_lineno + 1)


def functions(runs: Runs) -> Iterator[tuple[str, list[str], bool]]:
    """Public functions with the tests that run them, those they name first."""
    for name, value in public_objects():
        if not inspect.isfunction(value):
            continue
        code = inspect.unwrap(value).__code__
        path = Path(code.co_filename)
        (lines,) = (
            body
            for node, body in bodies(path)
            if node.name == value.__name__
            and min([node.lineno, *(d.lineno for d in node.decorator_list)])
            <= code.co_firstlineno
            <= node.lineno
        )
        named = TEST_FILE.findall(re.sub(r"\s+", " ", inspect.getdoc(value) or ""))
        tests = runs.of(path, lines)
        own = [test for test in tests if test.startswith(tuple(named))]
        yield name, own or tests, bool(own)


def experiments(runs: Runs) -> Iterator[tuple[str, list[str]]]:
    """Experiments with the tests that run their command line."""
    for path in sorted((ROOT / "experiments").glob("[a-z]*/main.py")):
        for node, lines in bodies(path):
            if node.name == "main":
                yield path.parent.name, runs.of(path, lines)


def silent_errors(runs: Runs) -> Iterator[str]:
    """Places of ``raise`` that no test reached."""
    for package in ("icltheory", "experiments"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Raise) and not runs.of(path, [node.lineno]):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}"


def quick_tests() -> list[str]:
    """Names of all tests of the quick tier."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "--numprocesses=0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in done.stdout.splitlines() if "::" in line]


def _row(name: str, tests: Sequence[str]) -> str:
    return f"| {name} | {len(tests)} | {f'`{tests[0]}`' if tests else '**none**'} |"


def _table(heading: str, rows: Iterable[str]) -> list[str]:
    return [
        "",
        f"## {heading}",
        "",
        f"| {heading} | tests | one |",
        "|---|---|---|",
        *rows,
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Prints or writes the tables; 1 where something has no quick test."""
    parser = argparse.ArgumentParser(prog="python -m tests.covered")
    parser.add_argument("--data", type=Path, default=ROOT / ".coverage")
    parser.add_argument("--output", type=Path, help="file for the tables")
    options = parser.parse_args(argv)
    runs, quick = Runs(options.data), quick_tests()
    claims = [
        (f"{s.paper}: {s.label}", [test for test in quick if is_claimed(s, test)])
        for s in STATEMENTS
        if s.tests
    ]
    called, started = list(functions(runs)), list(experiments(runs))
    silent = list(silent_errors(runs))
    lines = ["# What the quick tests cover"]
    lines += _table("statement", [_row(*claim) for claim in claims])
    lines += _table("public function", [_row(*found[:2]) for found in called])
    lines += _table("experiment", [_row(*found) for found in started])
    lines += ["", "## errors that no quick test raises", "", *silent]
    missing = [name for name, tests, *_ in (*claims, *called, *started) if not tests]
    elsewhere = [name for name, tests, own in called if tests and not own]
    summary = (
        f"{len(claims)} statements, {len(called)} public functions and {len(started)} "
        f"experiments; without a quick test: {', '.join(missing) or 'none'}. Run by "
        f"tests of other files than they name: {', '.join(elsewhere) or 'none'}. "
        f"{len(silent)} places of raise that no quick test reaches."
    )
    text = "\n".join([*lines[:1], "", summary, *lines[1:]])
    if options.output is not None:
        options.output.write_text(text + "\n")
    print(summary if options.output is not None else text)
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
