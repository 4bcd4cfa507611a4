"""A check of the tests: do they notice a wrong formula?

``python -m tests.mutations`` changes one operator, sign, index or constant of a
function at a time and runs the test files that use the function most; where these
pass, the quick tests of its package, the identities that use it, and the examples of
its docstrings. It reports which changes no test noticed. It is no part of the test
command; 120 changes take about half an hour on two cores.
"""

import argparse
import ast
import concurrent.futures
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
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "icltheory"
THEORY = ("linalg", "attention", "trajectory", "noise", "constructions", "bounds") + (
    "pruning",
    "regression",
    "patterns",
    "induction",
    "chain_of_thought",
)
# Test files that are run for a change.
FILES = 4
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


class Mutation(NamedTuple):
    """A change: its file, function and line, the positions it replaces and by what.

    ``context`` is the changed line before and after, ``tests`` are the files to run.
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


class Outcome(NamedTuple):
    """Whether the tests noticed a change, which did, and how long it took."""

    mutation: Mutation
    noticed: bool
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


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions and methods with their names."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    yield f"{node.name}.{part.name}", part


@functools.cache
def _texts() -> dict[str, str]:
    """Texts of all test files."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return {f.relative_to(ROOT).as_posix(): f.read_text() for f in files}


def _mentions(names: Iterable[str], least: int = 1) -> Counter[str]:
    """Counts how often each test file uses any of these names."""
    word = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    found = {file: len(word.findall(text)) for file, text in _texts().items()}
    return Counter({file: count for file, count in found.items() if count >= least})


@functools.cache
def _public_names(path: Path) -> tuple[str, ...]:
    """Public names of a module, or of the modules that import a private one."""
    own = re.findall(r"^(?:def|class) ([A-Za-z]\w*)", path.read_text(), re.MULTILINE)
    if not path.name.startswith("_"):
        return tuple(own)
    name = path.stem
    users = [p for p in sorted(path.parent.rglob("*.py")) if p != path]
    users = [p for p in users if re.search(rf"\b{name}\b", p.read_text())]
    return tuple(n for p in users if p.name[0] != "_" for n in _public_names(p))


@functools.cache
def tests_of(path: Path, function: str) -> tuple[str, ...]:
    """The test files that use a function most, or its module's public names."""
    name = function.split(".")[0]
    found = _mentions([name]) if name[0] != "_" else Counter()
    if len(found) < FILES:
        found += _mentions(_public_names(path)) if _public_names(path) else Counter()
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    named = {f"test_{part.lstrip('_')}.py" for part in parts}
    for file in _texts():
        found[file] += 1000 * (file.rpartition("/")[2] in named)
    return tuple(file for file, count in found.most_common(FILES) if count)


def further_tests(path: str) -> tuple[tuple[str, ...], ...]:
    """What runs where those pass: the package's tests, and the module's examples."""
    parts = Path(path).with_suffix("").parts
    package = re.compile(rf"\b{parts[1]}\b")
    of_package = (f"tests/{parts[1]}/", f"tests/test_{parts[1]}")
    others = ("tests/identities/", "tests/test_jax_modes.py", "tests/test_precision")
    files = [
        name
        for name, text in _texts().items()
        if name.startswith(of_package)
        or (name.startswith(others) and package.search(text))
    ]
    examples = ("tests/test_docs.py", "-k", f"docstrings and {'.'.join(parts)}")
    return examples, tuple(files)


def mutations_of(path: Path) -> dict[str, list[Mutation]]:
    """All changes of a file, by function."""
    source = path.read_text()
    lines = source.splitlines()
    found: dict[str, list[Mutation]] = {}
    for name, node in functions(ast.parse(source)):
        tests = tests_of(path, name)
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


def _run(tree: Path, tests: Sequence[str]) -> tuple[int, str]:
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


def examine(mutation: Mutation, tree: Path) -> Outcome:
    """Runs the quick tests of a changed function in a copy."""
    start = time.perf_counter()
    path = tree / mutation.path
    source = path.read_text()
    try:
        path.write_text(mutation.apply(source))
        for tests in (mutation.tests, *further_tests(mutation.path)):
            code, detail = _run(tree, tests)
            if code not in PASSED:
                break
    finally:
        path.write_text(source)
    if code not in PASSED + (1, 2):
        raise RuntimeError(f"{mutation.path}:{mutation.line}: {detail}")
    seen = code not in PASSED
    seconds = time.perf_counter() - start
    return Outcome(mutation, seen, detail if seen else "", seconds)


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


def check_all(chosen: Sequence[Mutation], jobs: int) -> Iterator[Outcome]:
    """Outcomes as they come; refuses to start where the unchanged tests fail."""
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

        def plain(test):
            return lambda tree: (test, *_run(tree, [test]))

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            tests = dict.fromkeys(t for m in chosen for t in m.tests)
            for test, code, detail in pool.map(one, map(plain, tests)):
                if code not in PASSED:
                    raise RuntimeError(f"{test} fails without any change: {detail}")
            tasks = [lambda tree, m=m: examine(m, tree) for m in chosen]
            waiting = [pool.submit(one, task) for task in tasks]
            for done in concurrent.futures.as_completed(waiting):
                yield done.result()


def main(argv: Sequence[str] | None = None) -> int:
    """Draws, runs and reports; 0 where at least 95 % were noticed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations", description=__doc__
    )
    add = parser.add_argument
    add("--count", type=int, default=120, help="how many changes (120)")
    add("--seed", type=int, default=0, help="fixes which (0)")
    add("--jobs", type=int, default=2, help="how many at a time (2)")
    add("--packages", nargs="+", default=THEORY, help="packages or modules to change")
    options = parser.parse_args(argv)
    chosen = draw(options.count, options.seed, options.packages)
    survived = []
    for number, outcome in enumerate(check_all(chosen, options.jobs), 1):
        m = outcome.mutation
        verdict = "noticed" if outcome.noticed else "SURVIVED"
        place = f"{m.path}:{m.line} {m.function}: {' -> '.join(m.context)}"
        took = f"{outcome.seconds:.0f} s"
        print(f"[{number}/{len(chosen)}] {verdict}, {took}: {place}", flush=True)
        print(f"    {outcome.detail or ' '.join(m.tests)}", flush=True)
        survived += [] if outcome.noticed else [place]
    noticed = len(chosen) - len(survived)
    print(f"\n{noticed} of {len(chosen)} noticed; the others, to be read:", *survived)
    return int(len(survived) > 0.05 * len(chosen))


if __name__ == "__main__":
    sys.exit(main())
