"""A check of the tests: do they notice a wrong formula?

``python -m tests.mutations`` changes one operator, sign, index or constant of a
function at a time and runs the test files that use the function most; where these
pass, the quick tests of its package, the identities that use it, and the examples of
its docstrings. It reports which changes no test noticed. It is no part of the test
command; 60 changes take about half an hour on two cores.
"""

import argparse
import ast
import concurrent.futures
import functools
import itertools
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
THEORY = ["linalg", "attention", "trajectory", "noise", "constructions", "bounds"]
THEORY += ["pruning", "regression", "patterns", "induction", "chain_of_thought"]
FILES = 4  # test files that are run first
SWAPS = "Add + -, Sub - +, Mult * /, Div / *, Pow ** *, FloorDiv // *, "
SWAPS += "Lt < >=, LtE <= >, Gt > <=, GtE >= <, Eq == !=, NotEq != =="
CHANGES = {name: swap for name, *swap in map(str.split, SWAPS.split(","))}
TIMEOUT = 900  # a changed program that takes longer hangs, which counts as noticed
PASSED = (0, 5)  # what pytest returns where no test failed, and where none was chosen
COMMAND = "-m pytest -x -q --tb=line --numprocesses=0 -p no:cacheprovider"


class Mutation(NamedTuple):
    """A change of a file: the bytes it replaces and by what, and the tests to run."""

    path: str
    function: str
    start: int
    end: int
    text: bytes
    tests: tuple[str, ...]

    def apply(self, source: bytes) -> bytes:
        """The source with the change."""
        return source[: self.start] + self.text + source[self.end :]

    def __str__(self) -> str:
        source = (ROOT / self.path).read_bytes()
        line = source.count(b"\n", 0, self.start)
        texts = (text.splitlines()[line] for text in (source, self.apply(source)))
        before, after = (text.decode().strip() for text in texts)
        return f"{self.path}:{line + 1} {self.function}: {before} -> {after}"


# --- where a program can be changed


class Sites(ast.NodeVisitor):
    """Collects the changes of one function; messages and checks are left alone."""

    def __init__(self, source: bytes):
        self.source, self.found = source, []
        lines = map(len, source.splitlines(keepends=True))
        self.starts = [0, *itertools.accumulate(lines)]

    def span(self, node) -> tuple[int, int]:
        """Where a node begins and ends."""
        start, end = (self.starts[n - 1] for n in (node.lineno, node.end_lineno))
        return start + node.col_offset, end + node.end_col_offset

    def between(self, left, operator, right):
        """Changes the operator between two nodes."""
        swap = CHANGES.get(type(operator).__name__, ("\0", ""))
        old, new = (text.encode() for text in swap)
        at = self.source.find(old, self.span(left)[1], self.span(right)[0])
        if at >= 0:
            self.found.append((at, at + len(old), new))

    def visit(self, node):
        """Collects the changes of a node and of what it contains."""
        match node:
            case ast.BinOp(left, op, right) if not isinstance(left, ast.JoinedStr):
                self.between(left, op, right)
            case ast.Compare(left, [op], [right]):
                self.between(left, op, right)
            case ast.UnaryOp(ast.USub(), operand):
                start, _ = self.span(node)
                self.found.append((start, start + 1, b""))
                if isinstance(operand, ast.Constant):
                    return
            case ast.Constant(value) if type(value) in (int, float):
                new = value + 1 if type(value) is int else 2 * value or 1.0
                self.found.append((*self.span(node), repr(new).encode()))
            case ast.FunctionDef(body=body):
                for part in body:
                    self.visit(part)
                return
            # What follows is no formula.
            case ast.If(_, [*_, ast.Raise()], []):
                return
            case ast.Call(ast.Name(name) | ast.Attribute(_, name)):
                if name.lstrip("_").startswith(("check", "warn")):
                    return
            case ast.arguments() | ast.Raise() | ast.Assert():
                return
            case ast.JoinedStr() | ast.AnnAssign():
                return
        self.generic_visit(node)


def mutations_of(path: Path) -> list[list[Mutation]]:
    """All changes of a file, by function or method."""
    source, found = path.read_bytes(), {}
    where = path.relative_to(ROOT).as_posix()
    for node in ast.parse(source).body:
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for part in node.body if prefix else [node]:
            if isinstance(part, ast.FunctionDef):
                name, sites = prefix + part.name, Sites(source)
                sites.visit(part)
                tests = tests_of(path, name)
                changes = sites.found if tests else ()
                found[name] = [Mutation(where, name, *one, tests) for one in changes]
    return [changes for changes in found.values() if changes]


def draw(count: int, seed: int, packages: Sequence[str] = THEORY) -> list[Mutation]:
    """Changes of different functions, at least five a package, fixed by the seed."""
    rng, pools = random.Random(seed), []
    for package in packages:
        root = PACKAGE / package
        paths = sorted(root.rglob("*.py")) or [root.with_suffix(".py")]
        pools.append([own for path in paths for own in mutations_of(path)])
        rng.shuffle(pools[-1])
    total = sum(map(len, pools))
    return [
        rng.choice(changes)
        for pool in pools
        for changes in pool[: max(5, round(count * len(pool) / total))]
    ]


# --- which tests use it


@functools.cache
def _texts() -> dict[str, str]:
    """Texts of all test files."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return {f.relative_to(ROOT).as_posix(): f.read_text() for f in files}


def _mentions(names: Iterable[str]) -> Counter[str]:
    """Counts how often each test file uses any of these names."""
    word = re.compile(rf"\b(?:{'|'.join(map(re.escape, names)) or '$^'})\b")
    return Counter({file: len(word.findall(text)) for file, text in _texts().items()})


@functools.cache
def _public_names(path: Path) -> list[str]:
    """Public names of a module, or of the modules that import a private one."""
    if not path.name.startswith("_"):
        return re.findall(r"^(?:def|class) ([A-Za-z]\w*)", path.read_text(), re.M)
    users = sorted(path.parent.rglob("[!_]*.py"))
    users = [p for p in users if re.search(rf"\b{path.stem}\b", p.read_text())]
    return [name for p in users for name in _public_names(p)]


@functools.cache
def tests_of(path: Path, function: str) -> tuple[str, ...]:
    """The test files that use a function most, or its module's public names."""
    name = function.split(".")[0]
    found = _mentions([name]) if name[0] != "_" else Counter()
    if len(+found) < FILES:
        found += _mentions(_public_names(path))
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    named = {f"test_{part.lstrip('_')}.py" for part in parts}
    for file in _texts():
        found[file] += 1000 * (file.rpartition("/")[2] in named)
    return tuple(file for file, count in found.most_common(FILES) if count)


def further_tests(path: str) -> tuple[tuple[str, ...], ...]:
    """What runs where those pass: the module's examples, and the package's tests."""
    parts = Path(path).with_suffix("").parts
    of_package = (f"tests/{parts[1]}/", f"tests/test_{parts[1]}")
    others = ("tests/identities/", "tests/test_jax_modes.py", "tests/test_precision")
    files = [
        name
        for name, text in _texts().items()
        if name.startswith(of_package)
        or (name.startswith(others) and re.search(rf"\b{parts[1]}\b", text))
    ]
    every = ("-m", "slow or not slow")  # most examples compile, and are slow
    of_module = f"docstrings and {'.'.join(parts)}"
    examples = ("tests/test_docs.py", *every, "-k", of_module)
    return examples, tuple(files)


# --- what the tests make of it


def _run(tree: Path, tests: Sequence[str]) -> tuple[int, str]:
    command = [sys.executable, *COMMAND.split(), *tests]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    try:
        done = subprocess.run(command, cwd=tree, env=env, timeout=TIMEOUT, **pipes)
    except subprocess.TimeoutExpired:
        return 1, f"no end within {TIMEOUT} s"
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return done.returncode, failed[0] if failed else done.stdout[-400:]


def examine(mutation: Mutation, tree: Path) -> str:
    """Runs the quick tests of a changed function in a copy; what noticed it, or ''."""
    path = tree / mutation.path
    source = path.read_bytes()
    try:
        path.write_bytes(mutation.apply(source))
        for tests in (mutation.tests, *further_tests(mutation.path)):
            code, detail = _run(tree, tests)
            if code in (1, 2):
                return detail
            if code not in PASSED:
                raise RuntimeError(f"{mutation}: {detail}")
    finally:
        path.write_bytes(source)
    return ""


def _copy(folder: Path, number: int) -> Path:
    tree = folder / f"tree_{number}"
    listing = ["git", "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    return tree


def check_all(chosen: Sequence[Mutation], jobs: int) -> Iterator[tuple[Mutation, str]]:
    """What noticed each; refuses to start where the unchanged tests fail."""
    trees: queue.Queue[Path] = queue.Queue()

    def lent(task, given):
        tree = trees.get()
        try:
            return given, task(given, tree)
        finally:
            trees.put(tree)

    with (
        tempfile.TemporaryDirectory(prefix="mutations-") as folder,
        concurrent.futures.ThreadPoolExecutor(jobs) as pool,
    ):
        for number in range(jobs):
            trees.put(_copy(Path(folder), number))
        files = sorted({file for mutation in chosen for file in mutation.tests})
        plain = functools.partial(lent, lambda file, tree: _run(tree, [file]))
        for file, (code, detail) in pool.map(plain, files):
            if code not in PASSED:
                raise RuntimeError(f"{file} fails without any change: {detail}")
        waiting = [pool.submit(lent, examine, mutation) for mutation in chosen]
        for done in concurrent.futures.as_completed(waiting):
            yield done.result()


def main(argv: Sequence[str] | None = None) -> int:
    """Draws, runs and reports; 0 where at least 95 % were noticed."""
    parser = argparse.ArgumentParser("python -m tests.mutations", description=__doc__)
    parser.add_argument("--count", type=int, default=60, help="how many changes (60)")
    parser.add_argument("--seed", type=int, default=0, help="fixes which (0)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (2)")
    parser.add_argument("--packages", nargs="+", default=THEORY, help="what to change")
    options = parser.parse_args(argv)
    chosen = draw(options.count, options.seed, options.packages)
    survived, begun = [], time.perf_counter()
    for number, (mutation, seen) in enumerate(check_all(chosen, options.jobs), 1):
        verdict = "noticed" if seen else "SURVIVED"
        took = f"{time.perf_counter() - begun:.0f} s"
        print(f"[{number}/{len(chosen)}] {verdict}, {took}: {mutation}", flush=True)
        print(f"    {seen or ' '.join(mutation.tests)}", flush=True)
        survived += [] if seen else [str(mutation)]
    noticed = len(chosen) - len(survived)
    print(f"\n{noticed} of {len(chosen)} noticed; the others, to be read:", *survived)
    return int(len(survived) > 0.05 * len(chosen))


if __name__ == "__main__":
    sys.exit(main())
