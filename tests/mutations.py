"""A check of the tests: do they notice a wrong formula?

``python -m tests.mutations`` changes one operator, sign, index or constant of a
function at a time, runs the tests that the function names, and reports which changes
no test noticed. It is no part of the test command; 120 changes take about half an
hour on two cores.
"""

import argparse
import ast
import collections
import concurrent.futures
import dataclasses
import functools
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.equivalent import EQUIVALENT

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "icltheory"
THEORY = ("linalg", "attention", "trajectory", "noise", "constructions", "bounds") + (
    "pruning",
    "regression",
    "patterns",
    "induction",
    "chain_of_thought",
)
TEST_FILE = re.compile(r"``(tests/[\w/]+\.py)``")
OPERATORS = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.Pow: ("**", "*"),
    ast.FloorDiv: ("//", "*"),
}
COMPARISONS = {
    ast.Lt: ("<", ">="),
    ast.LtE: ("<=", ">"),
    ast.Gt: (">", "<="),
    ast.GtE: (">=", "<"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}
# What a changed program may take before it counts as noticed: it hangs.
TIMEOUT = 900
# What pytest returns where no test failed, and where none was chosen.
PASSED = (0, 5)


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One change of one function.

    Attributes:
        path: File, relative to the repository.
        function: Qualified name of the changed function.
        line: Line of the change.
        start: Position in the file where the change begins.
        end: Position where it ends.
        text: What stands there instead.
        context: The changed line before and after.
        tests: Test files that the function names.
    """

    path: str
    function: str
    line: int
    start: int
    end: int
    text: str
    context: tuple[str, str]
    tests: tuple[str, ...]

    def apply(self, source: str) -> str:
        """The source with the change."""
        return source[: self.start] + self.text + source[self.end :]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What the tests made of a change: ``noticed``, ``survived`` or ``equivalent``."""

    mutation: Mutation
    verdict: str
    detail: str
    seconds: float


# --- where a program can be changed


class Sites(ast.NodeVisitor):
    """Collects the changes of one function; messages and checks are left alone."""

    def __init__(self, source: str):
        self.source = source
        lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line))
        self.lines = [line.encode() for line in lines]
        self.found: list[tuple[int, int, int, str]] = []

    def offset(self, line: int, column: int) -> int:
        """Position in the text; the parser counts columns in bytes."""
        return self.starts[line - 1] + len(self.lines[line - 1][:column].decode())

    def span(self, node) -> tuple[int, int]:
        return (
            self.offset(node.lineno, node.col_offset),
            self.offset(node.end_lineno, node.end_col_offset),
        )

    def add(self, node, start, end, text):
        self.found.append((node.lineno, start, end, text))

    def between(self, node, left, right, old, new):
        start, end = self.span(left)[1], self.span(right)[0]
        at = self.source.find(old, start, end)
        if at >= 0:
            self.add(left, at, at + len(old), new)

    def visit_BinOp(self, node):
        pair = OPERATORS.get(type(node.op))
        if pair is not None and not isinstance(node.left, ast.JoinedStr):
            self.between(node, node.left, node.right, *pair)
        self.generic_visit(node)

    def visit_Compare(self, node):
        pair = COMPARISONS.get(type(node.ops[0]))
        if pair is not None and len(node.ops) == 1:
            self.between(node, node.left, node.comparators[0], *pair)
        self.generic_visit(node)

    def visit_UnaryOp(self, node):
        start, _ = self.span(node)
        if isinstance(node.op, ast.USub):
            self.add(node, start, start + 1, "")
            if isinstance(node.operand, ast.Constant):
                return
        self.generic_visit(node)

    def visit_Constant(self, node):
        if type(node.value) is int:
            self.add(node, *self.span(node), str(node.value + 1))
        elif type(node.value) is float:
            self.add(node, *self.span(node), repr(2 * node.value or 1.0))

    # What follows is no formula.

    def visit_If(self, node):
        if isinstance(node.body[-1], ast.Raise) and not node.orelse:
            return
        self.generic_visit(node)

    def visit_Call(self, node):
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if not name.lstrip("_").startswith(("check", "warn")):
            self.generic_visit(node)

    def visit_arguments(self, node):
        pass

    visit_Raise = visit_Assert = visit_JoinedStr = visit_AnnAssign = visit_arguments

    def visit_FunctionDef(self, node):
        for part in node.body:
            self.visit(part)


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef, str]]:
    """Functions and methods, with their names and the docstrings that hold for them."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node, ast.get_docstring(node) or ""
        elif isinstance(node, ast.ClassDef):
            shared = ast.get_docstring(node) or ""
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    text = ast.get_docstring(part) or ""
                    text = text if TEST_FILE.search(_joined(text)) else shared
                    yield f"{node.name}.{part.name}", part, text


def _joined(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def _tests_of(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(TEST_FILE.findall(_joined(text))))


@functools.cache
def _importers(path: Path) -> tuple[Path, ...]:
    """Modules that import this one: any of a private one, else of the same package."""
    name = "icltheory." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    parent, _, last = name.rpartition(".")
    forms = rf"\b{re.escape(name)}\b|from {re.escape(parent)} import [^\n]*\b{last}\b"
    folder = PACKAGE if path.name.startswith("_") else path.parent
    return tuple(
        other
        for other in sorted(folder.rglob("*.py"))
        if other != path and re.search(forms, other.read_text())
    )


@functools.cache
def named_tests(path: Path, seen: frozenset[Path]) -> tuple[str, ...]:
    """Tests that a file names, or those of the files that import it."""
    found = _tests_of(path.read_text())
    if found or path in seen:
        return found
    others = (named_tests(p, seen | {path}) for p in _importers(path))
    return tuple(dict.fromkeys(test for tests in others for test in tests))


def _tests_of_users(path: Path) -> tuple[str, ...]:
    """Tests that a file and its importers name, and those called after its package."""
    files = [path, *_importers(path)]
    found = [named_tests(one, frozenset()) for one in files]
    found.append(_tests_called_after(path))
    return tuple(dict.fromkeys(test for tests in found for test in tests))


def _tests_called_after(path: Path) -> tuple[str, ...]:
    """Test files with the name of a module or of a package around it."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    names = {f"test_{part.lstrip('_')}.py" for part in parts}
    return tuple(f.relative_to(ROOT).as_posix() for f in files if f.name in names)


def mutations_of(path: Path) -> dict[str, list[Mutation]]:
    """All changes of a file, by function."""
    source = path.read_text()
    lines = source.splitlines()
    found: dict[str, list[Mutation]] = {}
    for name, node, text in functions(ast.parse(source)):
        tests = _tests_of(text) or _tests_of_users(path)
        sites = Sites(source)
        sites.visit(node)
        for line, start, end, new in sites.found:
            # A change may begin in a later line than the expression it belongs to.
            line = source.count("\n", 0, start) + 1
            changed = (source[:start] + new + source[end:]).splitlines()
            context = lines[line - 1].strip(), changed[line - 1].strip()
            where = path.relative_to(ROOT).as_posix()
            found.setdefault(name, []).append(
                Mutation(where, name, line, start, end, new, context, tests)
            )
    return {name: changes for name, changes in found.items() if changes[0].tests}


def draw(count: int, seed: int, packages: Sequence[str] = THEORY) -> list[Mutation]:
    """Changes of different functions, at least five a package, fixed by the seed."""
    rng = random.Random(seed)
    pools = {}
    for package in packages:
        root = PACKAGE / package
        paths = (
            sorted(root.rglob("*.py")) if root.is_dir() else [root.with_suffix(".py")]
        )
        pool = [group for path in paths for group in mutations_of(path).values()]
        rng.shuffle(pool)
        pools[package] = pool
    total = sum(map(len, pools.values()))
    chosen = []
    for pool in pools.values():
        share = max(5, round(count * len(pool) / total))
        chosen += [rng.choice(changes) for changes in pool[:share]]
    return chosen


# --- what the tests make of it


def _run(tree: Path, tests: Sequence[str], slow: bool) -> tuple[int, str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "--tb=line",
        "--numprocesses=0",
    ]
    command += ["-p", "no:cacheprovider", "--durations=0", "--durations-min=1e9"]
    command += ["-m", "slow"] if slow else []
    try:
        done = subprocess.run(
            [*command, *tests],
            cwd=tree,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return 1, f"no end within {TIMEOUT} s"
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return done.returncode, failed[0] if failed else done.stdout[-400:]


def examine(mutation: Mutation, tree: Path, slow: bool = False) -> Outcome:
    """Runs the quick or the slow tests of a changed function in a copy."""
    reason = EQUIVALENT.get((mutation.path, mutation.function, *mutation.context))
    start = time.perf_counter()
    if reason is not None:
        return Outcome(mutation, "equivalent", reason, 0.0)
    path = tree / mutation.path
    source = path.read_text()
    try:
        path.write_text(mutation.apply(source))
        code, detail = _run(tree, mutation.tests, slow)
    finally:
        path.write_text(source)
    if code not in PASSED + (1, 2):
        raise RuntimeError(f"{mutation.path}:{mutation.line}: {detail}")
    seen = code not in PASSED
    return Outcome(
        mutation,
        "noticed" if seen else "survived",
        detail if seen else "",
        time.perf_counter() - start,
    )


def _copy(folder: Path, number: int) -> Path:
    tree = folder / f"tree_{number}"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    return tree


def check_all(
    chosen: Sequence[Mutation], jobs: int, everything: bool = False
) -> Iterator[Outcome]:
    """Outcomes as they come; refuses to start where the unchanged tests fail.

    The slow tests run only for changes that the quick ones do not notice.
    """
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        trees: queue.Queue[Path] = queue.Queue()
        for number in range(jobs):
            trees.put(_copy(Path(folder), number))

        def one(task):
            tree = trees.get()
            try:
                return task(tree)
            finally:
                trees.put(tree)

        def check_unchanged(pool, mutations, slow):
            def plain(test):
                return lambda tree: (test, *_run(tree, [test], slow))

            tests = dict.fromkeys(t for m in mutations for t in m.tests)
            for test, code, detail in pool.map(one, map(plain, tests)):
                if code not in PASSED:
                    raise RuntimeError(f"{test} fails without any change: {detail}")

        def outcomes(pool, mutations, slow):
            tasks = [lambda tree, m=m: examine(m, tree, slow) for m in mutations]
            waiting = [pool.submit(one, task) for task in tasks]
            for done in concurrent.futures.as_completed(waiting):
                yield done.result()

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            check_unchanged(pool, chosen, slow=False)
            missed = []
            for outcome in outcomes(pool, chosen, slow=False):
                if everything and outcome.verdict == "survived":
                    missed.append(outcome.mutation)
                else:
                    yield outcome
            check_unchanged(pool, missed, slow=True)
            yield from outcomes(pool, missed, slow=True)


# --- the report


def table(outcomes: Sequence[Outcome]) -> str:
    """Counts by package, then every change that was not noticed."""
    lines = [
        "| package | changes | noticed | equivalent | survived |",
        "|---|---|---|---|---|",
    ]
    counts: dict[str, collections.Counter] = {}
    for outcome in outcomes:
        package = outcome.mutation.path.split("/")[1].removesuffix(".py")
        counts.setdefault(package, collections.Counter())[outcome.verdict] += 1
    for package, count in [
        *sorted(counts.items()),
        ("all", sum(counts.values(), collections.Counter())),
    ]:
        cells = (count[v] for v in ("noticed", "equivalent", "survived"))
        lines.append(f"| {package} | {count.total()} | {' | '.join(map(str, cells))} |")
    lines += ["", "| place | function | change | verdict |", "|---|---|---|---|"]
    for outcome in sorted(outcomes, key=lambda o: (o.mutation.path, o.mutation.line)):
        m = outcome.mutation
        if outcome.verdict != "noticed":
            before, after = (text.replace("|", "\\|") for text in m.context)
            why = f"{outcome.verdict}: {outcome.detail}".rstrip(": ")
            lines.append(
                f"| {m.path}:{m.line} | {m.function} | "
                f"`{before}` to `{after}` | {why} |"
            )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Draws, runs and reports; 0 where at least 95 % were noticed or are equivalent."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations", description=__doc__
    )
    add = parser.add_argument
    add("--count", type=int, default=120, help="how many changes (120)")
    add("--seed", type=int, default=0, help="fixes which (0)")
    add("--jobs", type=int, default=2, help="how many at a time (2)")
    add("--packages", nargs="+", default=THEORY, help="packages or modules to change")
    add(
        "--everything",
        action="store_true",
        help="run the slow tests on what the quick ones miss",
    )
    add("--list", action="store_true", help="print the changes and run nothing")
    add("--output", type=Path, help="file for the table")
    options = parser.parse_args(argv)
    chosen = draw(options.count, options.seed, options.packages)
    if options.list:
        for m in chosen:
            print(f"{m.path}:{m.line} {m.function}: {' -> '.join(m.context)} {m.tests}")
        return 0
    outcomes = []
    for outcome in check_all(chosen, options.jobs, options.everything):
        outcomes.append(outcome)
        m = outcome.mutation
        print(
            f"[{len(outcomes)}/{len(chosen)}] {outcome.verdict} in "
            f"{outcome.seconds:.0f} s: {m.path}:{m.line} "
            f"{' -> '.join(m.context)}  {outcome.detail}",
            flush=True,
        )
    text = table(outcomes)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n")
    missed = sum(outcome.verdict == "survived" for outcome in outcomes)
    return int(missed > 0.05 * len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
