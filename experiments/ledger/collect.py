"""Finds tests in source files, and the statements of the ledger that name them."""

import ast
import fnmatch
import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.ledger.statement import IDENTITIES, Statement

__all__ = [
    "claimed",
    "is_claimed",
    "missing_functions",
    "node_names",
    "orphans",
    "unmatched",
]


def node_names(path: Path, root: Path) -> list[str]:
    """Lists the test functions of a file without running it, as ``path::name``."""
    file = path.relative_to(root).as_posix()
    names = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            names += [f"{node.name}::{name}" for name in _functions(node.body)]
        names += _functions([node])
    return [f"{file}::{name}" for name in names]


def _functions(nodes: Iterable[ast.AST]) -> list[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        node.name
        for node in nodes
        if isinstance(node, kinds) and node.name.startswith("test")
    ]


def claimed(statement: Statement, root: Path) -> list[str]:
    """Lists the test functions that a statement names, in the order of its patterns."""
    found: dict[str, None] = {}
    for pattern in statement.patterns:
        found |= dict.fromkeys(_matching(pattern, root))
    return list(found)


def unmatched(statement: Statement, root: Path) -> list[str]:
    """Lists the test patterns of a statement that match no test."""
    return [p for p in statement.patterns if not _matching(p, root)]


def orphans(statements: Sequence[Statement], root: Path) -> list[str]:
    """Lists the identity tests that no statement names."""
    known = {name for statement in statements for name in claimed(statement, root)}
    files = sorted((root / IDENTITIES).glob("test_*.py"))
    names = (name for path in files for name in node_names(path, root))
    return [name for name in names if name not in known]


def missing_functions(statement: Statement) -> list[str]:
    """Lists the functions of a statement that cannot be imported."""
    return [name for name in statement.functions if not _imports(name)]


def is_claimed(statement: Statement, case: str) -> bool:
    """Whether a statement names a test case, with its parameters."""
    return any(_covers(pattern, case) for pattern in statement.patterns)


def _covers(pattern: str, case: str) -> bool:
    """Whether a pattern matches a test case; without brackets it ignores parameters."""
    (name, *asked), (ran, *given) = (text.split("[", 1) for text in (pattern, case))
    if not fnmatch.fnmatchcase(ran, name):
        return False
    return not asked or fnmatch.fnmatchcase("".join(given), asked[0])


def _matching(pattern: str, root: Path) -> list[str]:
    path, name = root / pattern.split("::")[0], pattern.split("[")[0]
    if not path.is_file():
        return []
    return [n for n in node_names(path, root) if fnmatch.fnmatchcase(n, name)]


def _imports(name: str) -> bool:
    module, _, symbol = f"icltheory.{name}".rpartition(".")
    outer, _, owner = module.rpartition(".")
    try:
        if owner[:1].isupper():  # a method or a property of a class
            return hasattr(getattr(importlib.import_module(outer), owner), symbol)
        return hasattr(importlib.import_module(module), symbol)
    except (ImportError, AttributeError):
        return False
