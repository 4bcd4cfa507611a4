"""Joins statements with the results of their tests."""

import collections
import dataclasses
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.ledger.collect import claimed, is_claimed
from experiments.ledger.measure import Session
from experiments.ledger.statement import Statement

__all__ = ["MeasuredNumber", "LedgerRow", "make_rows", "number", "summary"]


@dataclasses.dataclass(frozen=True)
class MeasuredNumber:
    """A number that the tests of a statement recorded.

    Attributes:
        name: What it is.
        value: The largest in absolute value of all that were recorded.
        count: How many were: one a set of parameters, or a drawn example.
    """

    name: str
    value: float
    count: int


@dataclasses.dataclass(frozen=True)
class LedgerRow:
    """One row of the ledger: a statement, the outcome of its tests, and numbers.

    Attributes:
        statement: What the paper says.
        verdict: ``passed``, ``FAILED``, ``not run`` or ``no test``.
        cases: Sets of parameters that passed, or those that failed where some did.
        measured: Numbers, one for each test function and name.
    """

    statement: Statement
    verdict: str
    cases: int
    measured: tuple[MeasuredNumber, ...]

    @property
    def outcome(self) -> str:
        """The verdict with the number of test cases."""
        return f"{self.verdict} ({self.cases})" if self.cases else self.verdict


def make_rows(
    statements: Sequence[Statement], session: Session, root: Path
) -> list[LedgerRow]:
    """Builds one row per statement, in the order of declaration."""
    return [_row(statement, session, root) for statement in statements]


def _row(statement: Statement, session: Session, root: Path) -> LedgerRow:
    ran = {n: c for n, c in session.cases.items() if is_claimed(statement, n)}
    counts = collections.Counter(case.outcome for case in ran.values())
    if not claimed(statement, root):
        verdict, cases = "no test", 0
    elif counts["failed"]:
        verdict, cases = "FAILED", counts["failed"]
    else:
        verdict, cases = "passed" if counts["passed"] else "not run", counts["passed"]
    numbers: dict[tuple[str, str], list[float]] = {}
    for node, case in sorted(ran.items()):
        for name, value in case.measured:
            numbers.setdefault((node.split("[")[0], name), []).append(value)
    measured = (MeasuredNumber(n, largest(v), len(v)) for (_, n), v in numbers.items())
    return LedgerRow(statement, verdict, cases, tuple(measured))


def largest(values: Iterable[float]) -> float:
    """Returns the value of largest magnitude; NaN counts as largest."""
    return max(values, key=lambda v: (math.isnan(v), abs(v)))


def number(item: MeasuredNumber) -> str:
    """Formats a recorded number with its name and the count it is the largest of."""
    text = f"{item.name}: {item.value:.3g}"
    return f"{text} (largest of {item.count})" if item.count > 1 else text


def summary(rows: Sequence[LedgerRow]) -> str:
    """Counts the statements by status, evidence and verdict, as text."""
    parts = []
    for kinds in (
        [row.statement.status for row in rows],
        [row.statement.evidence for row in rows],
        [row.verdict for row in rows],
    ):
        counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
        ordered = sorted(counts.items(), key=lambda pair: -pair[1])
        parts.append(", ".join(f"{count} {kind}" for kind, count in ordered))
    status, evidence, verdict = parts
    return f"{len(rows)} statements: {status}; evidence: {evidence}; tests: {verdict}"
