"""The report of a run: numbers, checks, claims, tables and figures."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from experiments._frame.tables import as_data, fitting

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Check:
    """A measured number and the reference it is compared with.

    Attributes:
        name: What was measured.
        measured: Its value.
        reference: What it is compared with.
        relation: ``"<="`` or ``"within"``.
        tolerance: Allowed distance, for ``"within"``; slack, for ``"<="``.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of a paper and what was measured; it does not affect the run's status.

    Attributes:
        claim: What the paper says.
        measured: What was measured.
        held: Whether it agrees.
        expected: What one measures if the claim holds, where that needs words.
    """

    claim: str
    measured: str
    held: bool | np.bool | np.ndarray
    expected: str = ""

    def __post_init__(self):
        # JSON cannot store NumPy booleans.
        object.__setattr__(self, "held", bool(self.held))


@dataclasses.dataclass(frozen=True)
class Report:
    """The results of a run: numbers, checks, claims, tables and figures.

    Attributes:
        numbers: Contents of ``result.json`` beside those of the other attributes.
        checks: Comparisons that decide whether the run passed.
        figures: Figures by file name, which ends with ``.png``.
        tables: Tables and lines to print, in order.
        claims: Claims of the papers beside what was measured.
        claims_title: Title of the table of claims.
        findings: Sentences that sum up the numbers.
        interval_level: Level of the intervals in numbers and figures; ``None`` where
            there are none or they differ.
        axes: What the indices of arrays among the numbers count, by their path, such
            as ``{"curves.*.mean": ["examples k, from 0"]}``.

    Raises:
        ValueError: If the name of a figure ends otherwise.
    """

    numbers: Mapping[str, Any]
    checks: Sequence[Check] = ()
    figures: Mapping[str, "Figure"] = dataclasses.field(default_factory=dict)
    tables: Sequence[Table | str] = ()
    claims: Sequence[Claim] = ()
    claims_title: str = "claims and measurements"
    findings: Sequence[str] = ()
    interval_level: float | None = None
    axes: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for name in self.figures:
            if not name.endswith(".png"):
                raise ValueError(
                    f"figures: expected file names that end with .png, got {name!r}"
                )

    def verdict(self, checked: bool = True) -> str:
        """Returns ``"passed"`` or ``"failed"``; ``"not applicable"`` unless checked."""
        if not checked:
            return "not applicable"
        return "passed" if self.passed else "failed"

    @property
    def passed(self) -> bool:
        """Whether all checks passed."""
        return all(check.passed for check in self.checks)

    def print(self, console: Console, checked: bool = True) -> None:
        """Prints tables, findings, claims and checks, and whether checks passed."""
        for one in self.tables:
            for part in fitting(one, console) if isinstance(one, Table) else [one]:
                console.print(part)
        for line in self.findings:
            console.print(f"- {line}", highlight=False)
        if self.claims:
            console.print(_claim_table(self.claims_title, self.claims))
        for check in self.checks:
            console.print(_check_line(check, checked))

    def as_dict(self) -> dict[str, Any]:
        """Returns the contents of ``result.json``."""
        found: dict[str, Any] = {
            "passed": self.passed,
            "checks": [check.as_dict() for check in self.checks],
        }
        if self.claims:
            found["claims"] = [dataclasses.asdict(claim) for claim in self.claims]
        if self.findings:
            found["findings"] = list(self.findings)
        if self.tables:
            found["tables"] = [
                table if isinstance(table, str) else as_data(table)
                for table in self.tables
            ]
        if self.axes:
            found["axes"] = {path: list(axes) for path, axes in self.axes.items()}
        return found | dict(self.numbers)


def _claim_table(title: str, claims: Iterable[Claim]) -> Table:
    table = Table(title=title)
    for name in ("claim", "measured", "held"):
        table.add_column(name)
    for claim in claims:
        verdict = "[green]yes[/]" if claim.held else "[red]no[/]"
        table.add_row(claim.claim, claim.measured, verdict)
    return table


def _check_line(check: Check, checked: bool) -> str:
    verdict = "[green]pass[/]" if check.passed else "[red]FAIL[/]"
    if not checked:
        verdict = "not applicable"
    sign = "-" if check.tolerance < 0 else "+-"
    return (
        f"{verdict}  {check.name}: {check.measured:.4g} {check.relation} "
        f"{check.reference:.4g} ({sign} {abs(check.tolerance):.4g})"
    )
