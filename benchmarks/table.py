"""The table of ratios in Markdown."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HEADER = (
    *("", "ours", "alternative", "its time", "ratio", "floor", "share of floor"),
    *("precision", "difference", "note"),
)
# Mean number of running processes before a run, above which times are doubtful.
_BUSY = 0.5
# An entry of pytest-benchmark's JSON; its ``extra_info`` is what suite.measure adds.
Entry = dict[str, Any]


def load(path: Path) -> dict[str, Any]:
    """Reads a file that ``pytest benchmarks --benchmark-json FILE`` wrote."""
    try:
        stored = json.loads(path.read_text())
        heading(stored), list(map(cells, stored["benchmarks"]))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            "results: expected a file written by pytest benchmarks --benchmark-json, "
            f"got {path} ({type(error).__name__}: {error})"
        ) from error
    return stored


def number(value: float | None) -> str:
    """Formats a number with three significant digits, or a dash for ``None``."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if 100 <= abs(value) < 1e7 else f"{value:.3g}"


def duration(seconds: float | None) -> str:
    """Formats a duration in a suitable unit, or a dash for ``None``."""
    if seconds is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{number(seconds / size)} {unit}"
    return f"{number(seconds * 1e9)} ns"


def fact(name: str, value: float) -> str:
    """Formats a number with its unit, the last word of its name: "compile 1.3 s"."""
    if name.endswith(":"):
        return f"{name} {number(value)}"
    *what, unit = name.split(" ")
    return " ".join([*what, number(value), unit])


def quotient(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def seconds_of(entry: Entry) -> float | None:
    """Returns our time for a unit of work."""
    return quotient(entry["stats"]["median"], entry["extra_info"].get("per", 1))


def ratio(entry: Entry) -> float | None:
    """Returns the time of the alternative divided by our time."""
    return quotient(entry["extra_info"]["alternative_s"], seconds_of(entry))


def cells(entry: Entry) -> list[str]:
    """Returns the cells of a row as text, in the order of ``HEADER``."""
    about, ours = entry["extra_info"], seconds_of(entry)
    error, allowed, floor = about["error"], about["tolerance"], about["floor_s"]
    wrong = error is not None and allowed is not None and not error <= allowed
    verdict = f"WRONG, at most {number(allowed)} allowed" if wrong else ""
    facts = ", ".join(fact(*item) for item in about["facts"].items())
    note = "; ".join(part for part in (verdict, about["note"], facts) if part)
    return [
        *(entry["param"], duration(ours), about["alternative"] or "-"),
        *(duration(about["alternative_s"]), number(ratio(entry)), duration(floor)),
        *(number(quotient(floor, ours)), about["precision"], number(error), note),
    ]


def heading(stored: dict[str, Any]) -> str:
    """Returns the machine, the versions and the peak rates as a sentence each."""
    about = stored["machine_info"]
    versions = {name.lower(): name for name in ("Python", "jax", "torch")}
    found = ((versions.get(key), v) for key, v in about["versions"].items())
    known = [f"{name} {v}" for name, v in found if name]
    busy = about["load before"] or 0.0
    warning = f"; {busy:.1f} processes ran when it began" if busy >= _BUSY else ""
    peaks = "; ".join(fact(*peak) for peak in about["peaks"].items())
    return (
        f"{about['name']}, {stored['datetime'][:10]} ({', '.join(known)}), "
        f"revision {about['revision']}{warning}.\nPeaks: {peaks}.\n"
    )


def markdown(entries: Iterable[Entry], before: Sequence[Entry] = ()) -> str:
    """Returns a Markdown table per group, with the ratios of another run if given."""
    known = {(old["group"], old["param"]): number(ratio(old)) for old in before}
    parts, bar = [], r"\|"  # within a cell

    def line(row: Sequence[str], ratio_before: str) -> str:
        every = [*row[:5], *[ratio_before] * bool(before), *row[5:]]
        return f"| {' | '.join(cell.replace('|', bar) for cell in every)} |"

    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry["group"], []).append(entry)
    for group, members in groups.items():
        lines = [line(HEADER, "before"), line(["---"] * len(HEADER), "---")]
        for entry in members:
            lines.append(line(cells(entry), known.get((group, entry["param"]), "-")))
        parts.append("\n".join([f"**{group}**", "", *lines]))
    return "\n\n".join(parts) + "\n"
