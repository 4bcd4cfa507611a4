"""Run folders: config, metrics as they come, results; files are whole or absent."""

import contextlib
import dataclasses
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from rich.console import Console
from rich.table import Table

import icltheory
from experiments._cores import cores_usable
from experiments._launch import Launch
from icltheory.strict_json import plain


@dataclasses.dataclass(frozen=True)
class Check:
    """A measured number beside the number it is compared with.

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
        # NumPy's numbers would make NumPy's booleans, which are not JSON.
        for name in ("measured", "reference", "tolerance"):
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def passed(self) -> bool:
        """Whether the number is what was expected."""
        if self.relation == "<=":
            return self.measured <= self.reference + self.tolerance
        return abs(self.measured - self.reference) <= self.tolerance

    def as_dict(self) -> dict[str, Any]:
        """The check and its verdict, for JSON."""
        return {**dataclasses.asdict(self), "passed": self.passed}


class Run:
    """The folder ``OUTPUT/NAME/STAMP`` of one run.

    Only the first process of several writes; the others see the same folder.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.writes = jax.process_index() == 0

    @classmethod
    def create(cls, output: Path, name: str, preset: str, config: Any) -> "Run":
        """Makes the folder of a new run and writes its config."""
        # Checkpoints there could be written, but never read: Orbax globs its path.
        if set("[]") & set(str(output.absolute())):
            raise ValueError(
                f"output: expected a path without [ and ], got {output.absolute()}"
            )
        run = cls(output / name / _agreed_stamp())
        if run.writes:
            try:
                run.folder.mkdir(parents=True)
            except OSError as error:
                raise ValueError(
                    f"output: expected a folder that can be written, got {output} "
                    f"({error.strerror})"
                ) from error
        stored = {
            "experiment": name,
            "preset": preset,
            "config": dataclasses.asdict(config),
            "environment": environment(),
        }
        # An infinity among its fields must come back as one.
        run.write_text("config.json", json.dumps(stored, indent=1) + "\n")
        return run

    @classmethod
    def of(cls, launch: Launch, name: str) -> "Run":
        """The run that a command line asked for: a new one, or one to go on with."""
        if launch.resume is not None:
            return cls(launch.resume)
        return cls.create(launch.output, name, launch.preset, launch.config)

    def write_json(self, name: str, value: Any) -> Any:
        """Writes a file aside and renames it.

        Returns what a reader of the file gets.
        """
        text = json.dumps(plain(value), indent=1)
        self.write_text(name, text + "\n")
        return json.loads(text)

    def write_text(self, name: str, text: str) -> None:
        """Writes a file aside and renames it."""
        if not self.writes:
            return
        with self.replacing(name) as aside:
            aside.write_text(text)

    @contextlib.contextmanager
    def replacing(self, name: str):
        """Gives a path to write to, which becomes ``name`` once it is complete."""
        target = self.folder / name
        aside = target.with_name(f".writing_{target.name}")
        yield aside
        os.replace(aside, target)

    def reset_metrics(self, records: Iterable[dict[str, Any]]) -> None:
        """Makes ``metrics.jsonl`` hold exactly these records, as after a resume."""
        self.write_text("metrics.jsonl", "".join(_line(r) for r in records))

    def log(self, record: dict[str, Any]) -> None:
        """Appends a record to ``metrics.jsonl``."""
        if self.writes:
            with (self.folder / "metrics.jsonl").open("a") as file:
                file.write(_line(record))

    def save_figure(self, name: str, figure: Any) -> Path:
        """Saves a matplotlib figure as PNG."""
        if self.writes:
            with self.replacing(name) as aside:
                figure.savefig(aside, format="png")
        return self.folder / name


def _line(record: dict[str, Any]) -> str:
    return json.dumps(plain(record)) + "\n"


def _agreed_stamp() -> str:
    """Time of the start to the microsecond, the same in every process."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    if jax.process_count() == 1:
        return stamp
    letters = np.frombuffer(stamp.encode(), np.uint8)
    agreed = multihost_utils.broadcast_one_to_all(letters)
    return bytes(np.asarray(agreed, np.uint8)).decode()


def environment() -> dict[str, Any]:
    """Versions, device and revision: what a number needs to be reproduced."""
    devices = jax.devices()
    return {
        "icltheory": icltheory.__version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": devices[0].device_kind,
        "num_devices": len(devices),
        "cores": cores_usable(),
        "revision": _revision(),
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def _revision() -> str | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout.strip()
    return None


def default_preset() -> str:
    """``gpu`` where there is one, else ``cpu``; asking touches the device."""
    return "gpu" if jax.default_backend() == "gpu" else "cpu"


def stated_claim(claim: str, expected: str, measured: str, held: Any) -> dict[str, Any]:
    """What a paper claims and what was measured; it does not decide the run."""
    return {
        "claim": claim,
        "expected": expected,
        "measured": measured,
        "held": bool(held),
    }


def claim_table(title: str, stated: Iterable[dict[str, Any]]) -> Table:
    """What a paper claims, what was measured, and whether it held."""
    table = Table(title=title)
    for name in ("claim", "measured", "held"):
        table.add_column(name)
    for row in stated:
        verdict = "[green]yes[/]" if row["held"] else "[red]no[/]"
        table.add_row(row["claim"], row["measured"], verdict)
    return table


def largest(values: Iterable[Any]) -> float:
    """The maximum for a check: NaN if one is, over which Python's ``max`` may pass."""
    return float(np.max([float(value) for value in values]))


def print_checks(console: Console, checks: Iterable[Check]) -> None:
    """Prints one line a check, its verdict first."""
    for check in checks:
        verdict = "[green]pass[/]" if check.passed else "[red]FAIL[/]"
        console.print(
            f"{verdict}  {check.name}: {check.measured:.4g} {check.relation} "
            f"{check.reference:.4g} (+- {check.tolerance:.4g})"
        )


def console_of(run: Run) -> Console:
    """A console wide enough for the table also where the output is no terminal."""
    console = Console(quiet=not run.writes)
    return console if console.is_terminal else Console(quiet=not run.writes, width=120)


def main(function: Callable[[], Any]) -> None:
    """Runs an experiment; what the user can mend is said in one line, status 2.

    Ctrl-C is answered in one line too, with the status 130 that shells give it.
    """
    try:
        function()
    except KeyboardInterrupt:
        if os.environ.get("ICLTHEORY_TRACEBACK"):
            raise
        print(
            "interrupted; a run that was begun goes on with --resume RUN",
            file=sys.stderr,
        )
        sys.exit(130)
    except (ValueError, OSError, FloatingPointError) as error:
        if os.environ.get("ICLTHEORY_TRACEBACK"):
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
