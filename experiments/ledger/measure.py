"""Runs the tests in a separate process and collects the numbers that they record."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["TestOutcome", "Session", "run_tests"]

SOURCE = Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class TestOutcome:
    """Outcome of a test with one set of parameters.

    Attributes:
        outcome: ``passed``, ``failed`` or ``skipped``.
        measured: Names and numbers that it recorded, in order.
    """

    outcome: str
    measured: tuple[tuple[str, float], ...] = ()


@dataclasses.dataclass(frozen=True)
class Session:
    """A run of pytest.

    Attributes:
        cases: What ran, by node id, ``path::name[parameters]``.
        healthy: Whether everything that was asked for ran and passed.
        output: What pytest printed.
    """

    cases: dict[str, TestOutcome]
    healthy: bool
    output: str


def run_tests(
    targets: Sequence[str],
    root: Path,
    *,
    quick: bool = False,
    processes: str | None = None,
) -> Session:
    """Runs pytest on files, folders or node ids.

    Args:
        targets: What to run, relative to ``root``.
        root: Folder with the tests.
        quick: Leave out those marked slow.
        processes: Processes for pytest-xdist; what the project says when left out.

    Returns:
        What ran and what it measured.
    """
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "ledger.json"
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short"]
        command += ["-p", "experiments.ledger._plugin", f"--ledger-json={record}"]
        command += ["-m", "not slow" if quick else "slow or not slow"]
        command += [f"--numprocesses={processes}"] if processes else []
        paths = [str(SOURCE), os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(
            [*command, *targets],
            cwd=root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        found = json.loads(record.read_text()) if record.is_file() else None
    if found is None:
        return Session({}, False, done.stdout)
    healthy = done.returncode == 0 and not found["broken"]
    cases = {name: _case(test) for name, test in found["tests"].items()}
    return Session(cases, healthy, done.stdout)


def _case(test: dict) -> TestOutcome:
    numbers = ((name, float(value)) for name, value in test["measured"])
    return TestOutcome(test["outcome"], tuple(numbers))
