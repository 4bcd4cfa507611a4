"""What each test costs: a plugin that records, and a table of the dearest.

``uv run pytest -p tests.costs --costs=FILE`` adds a line of JSON a test to FILE: its
processor seconds (of the processes it started, too), and how many programs JAX
compiled for it in how many seconds. ``python -m tests.costs FILE`` prints the table.
"""

import argparse
import collections
import json
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

_EVENTS = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)
_PATH = pytest.StashKey[Path]()
_totals: collections.Counter = collections.Counter()


def pytest_addoption(parser):
    parser.addoption("--costs", type=Path, help="append each test's cost to this file")


def pytest_configure(config):
    if config.getoption("costs") is None:
        return
    config.stash[_PATH] = config.getoption("costs").absolute()

    import jax.monitoring

    jax.monitoring.register_event_duration_secs_listener(_count)


def _count(event, seconds, **_):
    if event in _EVENTS:
        _totals["compiling"] += seconds
        _totals["programs"] += event == _EVENTS[-1]


def _processor_seconds() -> float:
    started = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + started.ru_utime + started.ru_stime


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Appends one line; lines this short are written whole, by several workers, too."""
    path = item.config.stash.get(_PATH, None)
    if path is None:
        return (yield)
    before, start = dict(_totals), _processor_seconds()
    try:
        return (yield)
    finally:
        row = {
            "test": item.nodeid.split("@")[0],
            "slow": item.get_closest_marker("slow") is not None,
            "seconds": round(_processor_seconds() - start, 3),
            "programs": _totals["programs"] - before.get("programs", 0),
            "compiling": round(_totals["compiling"] - before.get("compiling", 0), 3),
        }
        with path.open("ab", buffering=0) as file:
            file.write(json.dumps(row).encode() + b"\n")


def table(rows: Sequence[dict], count: int) -> str:
    """Sums, then the dearest tests, in Markdown."""
    rows = sorted(rows, key=lambda row: -row["seconds"])
    lines = []
    for name, part in (
        ("all tests", rows),
        ("quick tests", [row for row in rows if not row["slow"]]),
        (f"the {count} dearest", rows[:count]),
    ):
        sums = {key: sum(row[key] for row in part) for key in ("seconds", "compiling")}
        programs = sum(row["programs"] for row in part)
        lines.append(
            f"- {name}: {len(part)} tests, {sums['seconds']:.0f} processor seconds, "
            f"of which {sums['compiling']:.0f} to compile {programs} programs"
        )
    lines += ["", "| processor s | programs | tier | test |", "|---|---|---|---|"]
    lines += [
        f"| {row['seconds']:.1f} | {row['programs']} | "
        f"{'slow' if row['slow'] else 'quick'} | `{row['test']}` |"
        for row in rows[:count]
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table of a recorded file."""
    parser = argparse.ArgumentParser(prog="python -m tests.costs")
    parser.add_argument("file", type=Path, help="what --costs wrote")
    parser.add_argument("--count", type=int, default=50, help="rows of the table (50)")
    options = parser.parse_args(argv)
    rows = [json.loads(line) for line in options.file.read_text().splitlines()]
    print(table(rows, options.count))
    return 0


if __name__ == "__main__":
    sys.exit(main())
