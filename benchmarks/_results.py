"""Reads and writes files of benchmark results."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import _machine
from benchmarks._suite import BenchmarkRow
from experiments.frame import Run

FORMAT = 1
# Mean number of running processes in the minute before, above which times are doubtful.
BUSY = 0.5


class Results(NamedTuple):
    """The results of one run of the suite.

    Attributes:
        about: Machine, versions, revision, date, peaks, load and the options.
        rows: All rows, those left out and those that failed included.
    """

    about: dict[str, Any]
    rows: tuple[BenchmarkRow, ...]

    @property
    def machine(self) -> str:
        """Name of the machine."""
        return self.about["machine"]["name"]

    @property
    def date(self) -> str:
        """Day of the run."""
        return self.about["started"][:10]

    @property
    def stem(self) -> str:
        """Name of the files of these results, without its ending."""
        return f"{_machine.slug(self.machine)}-{self.date}"

    @property
    def title(self) -> str:
        """Machine, date and the most important versions, as a title."""
        versions = self.about["versions"]
        named = ", ".join(
            f"{name} {versions[key]}"
            for name, key in (("Python", "python"), ("jax", "jax"), ("torch", "torch"))
            if key in versions
        )
        return f"{self.machine}, {self.date} ({named})"

    @property
    def warning(self) -> str:
        """Says that the run was stopped or the machine was busy, else is empty."""
        stopped = "; stopped before its end" * self.about.get("unfinished", False)
        busy = (self.about.get("load before") or [0.0])[0]
        if busy < BUSY:
            return stopped
        return (
            f"{stopped}; the machine was busy: {busy:.1f} processes ran when it began"
        )


def save(results: Results, folder: Path) -> Path:
    """Writes ``STEM.json`` and replaces an existing file of that name."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = {"format": FORMAT, **results.about}
    stored["rows"] = [row.as_dict() for row in results.rows]
    Run(folder).write_json(f"{results.stem}.json", stored)
    return folder / f"{results.stem}.json"


def load(path: Path) -> Results:
    """Reads a file of benchmark results.

    Raises:
        ValueError: If it is none.
    """
    try:
        stored = json.loads(path.read_text())
        written = stored.pop("format")
        if written != FORMAT:
            raise ValueError(f"expected format {FORMAT}, got {written!r:.40}")
        rows = tuple(BenchmarkRow(**row) for row in stored.pop("rows"))
        return Results(stored, rows)
    except (OSError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"results: expected a file written by python -m benchmarks, got {path} "
            f"({type(error).__name__}: {error})"
        ) from error
