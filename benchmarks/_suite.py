"""Result rows and time budgets, which all benchmarks share.

A module of the suite has ``measure(budget)``, which returns or yields rows, is named in
:mod:`benchmarks._registry`, and runs alone by ``_alone.main(measure)``. Most list
their cases and hand them to :func:`each`, which drops what the time does not allow and
turns a failure into a row.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class BenchmarkRow:
    """One result: our time, the alternative's time, the hardware limit and the error.

    Attributes:
        group: Title of the rows that belong together, with their sizes.
        name: What was measured.
        ours_s: Seconds of this library.
        alternative: What a user would run instead.
        alternative_s: Its seconds, from the same run.
        floor_s: Seconds that the machine needs for the operations or the bytes.
        precision: Dtype of the numbers.
        error: Largest difference between the two answers, relative to the largest.
        tolerance: What the precision allows it to be; more makes the row wrong.
        note: What a reader has to know.
        facts: Further numbers, by name with unit.
        status: ``"measured"``, ``"skipped"``, ``"late"`` (skipped for want of time) or
            ``"failed"``.
    """

    group: str = ""
    name: str = ""
    ours_s: float | None = None
    alternative: str = ""
    alternative_s: float | None = None
    floor_s: float | None = None
    precision: str = "float32"
    error: float | None = None
    tolerance: float | None = None
    note: str = ""
    facts: Mapping[str, float] = dataclasses.field(default_factory=dict)
    status: str = "measured"

    @property
    def ratio(self) -> float | None:
        """Time of the alternative divided by our time."""
        return _quotient(self.alternative_s, self.ours_s)

    @property
    def share_of_floor(self) -> float | None:
        """Hardware limit divided by our time; 1 means as fast as the machine can be."""
        return _quotient(self.floor_s, self.ours_s)

    @property
    def wrong(self) -> bool:
        """Whether the two results differ by more than the tolerance or by NaN."""
        if self.error is None or self.tolerance is None:
            return False
        return not self.error <= self.tolerance

    @property
    def left_out(self) -> bool:
        """Whether the row was not attempted."""
        return self.status in ("skipped", "late")

    @property
    def bad(self) -> bool:
        """Whether the row makes the run fail: it failed or its result is wrong."""
        return self.status == "failed" or self.wrong

    @property
    def key(self) -> tuple[str, str, str]:
        """Group, name and precision, which identify the same measurement."""
        return self.group, self.name, self.precision

    @classmethod
    def skipped(cls, group: str, name: str, why: str) -> "BenchmarkRow":
        """Returns a row that was left out, with the reason."""
        return cls(group, name, precision="", note=why, status="skipped")

    @classmethod
    def late(cls, group: str, name: str, why: str) -> "BenchmarkRow":
        """Returns a row for which no time was left, with the time it needs."""
        return cls(group, name, precision="", note=why, status="late")

    @classmethod
    def failed(cls, group: str, name: str, why: str | Exception) -> "BenchmarkRow":
        """Returns a row whose measurement failed, with the error."""
        if isinstance(why, Exception):
            why = f"{type(why).__name__}: {why}".splitlines()[0]
        return cls(group, name, precision="", note=why, status="failed")

    def as_dict(self) -> dict[str, Any]:
        """The row as a dictionary for JSON."""
        return dataclasses.asdict(self)


def _quotient(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


class Skip(Exception):
    """Raised by a case that cannot run on this machine; the message says why."""


class Budget:
    """The time in seconds that a benchmark may take, counted from its creation.

    Args:
        seconds: How long.
        quick: Whether only the first case is wanted, to see that all is well.
        wanted: Groups and names of the only cases to measure; all if there are none.
    """

    def __init__(
        self,
        seconds: float = float("inf"),
        quick: bool = False,
        wanted: Iterable[Sequence[str]] = (),
    ):
        self.seconds, self.quick = seconds, quick
        self.wanted = {tuple(pair) for pair in wanted}
        self._begun = time.monotonic()

    def left(self) -> float:
        """Seconds left."""
        return self.seconds - (time.monotonic() - self._begun)


@dataclasses.dataclass(frozen=True)
class Case:
    """One case of a benchmark, which returns one row or several.

    Attributes:
        name: Of the row, unless it brings its own.
        seconds: What measuring it takes on two cores, about.
        measure: Returns a row or several; group and name may be left out.
    """

    name: str
    seconds: float
    measure: Callable[[], BenchmarkRow | Iterable[BenchmarkRow]]


def each(group: str, budget: Budget, cases: Iterable[Case]) -> Iterator[BenchmarkRow]:
    """Runs the cases in order and yields their rows, also for failed and omitted cases.

    On a machine slower than expected, later cases are expected to be as slow.
    """
    expected = spent = 0.0
    for number, case in enumerate(cases):
        if budget.wanted and (group, case.name) not in budget.wanted:
            continue
        needed = case.seconds * max(1.0, spent / expected if expected else 1.0)
        if budget.quick and number:
            yield BenchmarkRow.skipped(group, case.name, "quick run")
            continue
        if needed > budget.left() and not budget.quick:
            why = f"needs about {needed:.0f} s, {max(budget.left(), 0):.0f} s left"
            yield BenchmarkRow.late(group, case.name, why)
            continue
        begun = time.monotonic()
        yield from _rows_of(group, case)
        expected, spent = expected + case.seconds, spent + time.monotonic() - begun


def _rows_of(group: str, case: Case) -> Iterator[BenchmarkRow]:
    try:
        found = case.measure()
        for row in (found,) if isinstance(found, BenchmarkRow) else found:
            names = {"group": row.group or group, "name": row.name or case.name}
            yield dataclasses.replace(row, **names)
    except Skip as why:
        yield BenchmarkRow.skipped(group, case.name, str(why))
    except Exception as error:
        yield BenchmarkRow.failed(group, case.name, error)
