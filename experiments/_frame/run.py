"""A run of an experiment: its folder, its phases and its console output."""

import contextlib
import dataclasses
import functools
import json
import os
import shlex
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from rich.console import Console

from experiments._frame.command_line import Launch
from experiments._frame.environment import environment
from experiments._frame.page import page
from experiments._frame.pictures import close, write_png, write_svg
from experiments._frame.program import continue_with
from experiments._frame.progress import Activity, Display, track
from experiments._frame.report import Report
from experiments._frame.stored import experiment_of
from icltheory.strict_json import plain

# Version of ``result.json``, which increases when a value changes its name or meaning.
SCHEMA_VERSION = 1

Item = TypeVar("Item")


class Run:
    """The folder ``OUTPUT/NAME/STAMP`` of one run, and its console output.

    Of several processes only the first writes and prints; the others see the folder.

    Attributes:
        folder: Where the files are.
        writes: Whether this process writes and prints.
        seconds: Wall time of each phase.
        launch: The command line, if one began the run.
        checked: Whether checks are made of a run that no command line began.
    """

    def __init__(self, folder: Path, launch: Launch | None = None):
        self.folder = folder
        self.launch = launch
        self.checked = True
        self.writes = jax.process_index() == 0
        self.seconds: dict[str, float] = {}
        self._started = time.perf_counter()

    @classmethod
    def begin(cls, launch: Launch, summary: str) -> "Run":
        """Creates a new run, or opens the run to continue, as the command line says.

        Args:
            launch: The command line.
            summary: What is computed, for the first line that is printed.
        """
        if launch.resume is not None:
            run = cls(launch.resume, launch)
        else:
            about = {
                "about": experiment_of(launch.config)[1],
                "command": launch.command,
            }
            run = cls.create(
                launch.output, launch.name, launch.preset, launch.config, **about
            )
            run.launch = launch
        continue_with(shlex.join(launch.continuing(run.folder)))
        count = f"{jax.device_count()} x " if jax.device_count() > 1 else ""
        run.console.print(
            f"{launch.name}, preset {launch.preset}: {summary}, on {count}"
            f"{jax.devices()[0].device_kind}\nwriting to {run.folder}"
        )
        return run

    @classmethod
    def create(
        cls, output: Path, name: str, preset: str, config: Any, **about: str
    ) -> "Run":
        """Creates the folder of a new run and writes its config and environment.

        Raises:
            ValueError: if the folder cannot be made.
        """
        # Orbax treats its path as a glob pattern, so checkpoints there could not be
        # read.
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
        run._write_config(
            {
                "experiment": name,
                "preset": preset,
                **about,
                "config": dataclasses.asdict(config),
                "environment": environment(),
            }
        )
        return run

    def _write_config(self, stored: dict[str, Any]) -> None:
        # Python's JSON keeps infinities, so that they can be read back from the config.
        self.write_text("config.json", json.dumps(stored, indent=1) + "\n")

    def extend(self) -> bool:
        """Stores the config with more steps if the command line extends the run.

        It is called once the checkpoints are known to fit, so that a refused extension
        leaves the run as it was.

        Returns:
            Whether the run is extended.
        """
        if self.launch is None or not self.launch.extends:
            return False
        stored = json.loads((self.folder / "config.json").read_text())
        config = dataclasses.asdict(self.launch.config)
        begun = stored.get("command", "")
        command = f"{begun}\n{self.launch.command}".lstrip()
        self._write_config({**stored, "command": command, "config": config})
        return True

    @property
    def quiet(self) -> bool:
        """Whether only warnings, the final tables and the verdict are printed."""
        return self.launch is not None and self.launch.quiet

    @functools.cached_property
    def console(self) -> Console:
        """Console for messages about the run's progress; silent with ``--quiet``."""
        return _console(quiet=True) if self.quiet else self.results

    @functools.cached_property
    def results(self) -> Console:
        """Console for warnings, tables and verdicts; silent except in process 0.

        It is wide enough for the tables also where the output is no terminal.
        """
        return _console(quiet=not self.writes)

    def warn(self, line: str) -> None:
        """Prints a warning."""
        self.results.print(f"[yellow]warning:[/] {line}")

    @functools.cached_property
    def _display(self) -> Display:
        return Display(self.console)

    def progress(
        self, label: str, total: int | None = None, *, done: int = 0, unit: str = ""
    ) -> contextlib.AbstractContextManager[Activity]:
        """Shows the progress of an activity and the time left.

        Args:
            label: What is done.
            total: How many units there are, if that is known.
            done: How many were done by an earlier run.
            unit: What is counted.

        Returns:
            A context manager of the activity, whose ``advance`` counts and whose
            ``enter`` names the stage, such as ``"compiling"``.
        """
        return self._display.during(Activity(label, total, done, unit))

    def track(
        self, items: Iterable[Item], label: str, unit: str = ""
    ) -> Iterator[Item]:
        """Yields a known number of items and shows how many are left."""
        items = list(items)
        return track(self._display, items, Activity(label, len(items), unit=unit))

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Shows a phase of the run, measures its wall time and prints it at the end."""
        begun = time.perf_counter()
        with self.progress(name):
            yield
        self.seconds[name] = time.perf_counter() - begun
        self.console.print(f"{name}: {self.seconds[name]:.1f} s")

    def finish(self, report: Report, **numbers: Any) -> dict[str, Any]:
        """Prints a report and writes figures, ``result.json`` and ``report.html``.

        The file begins with ``schema_version``, the ``experiment``, the ``verdict``
        (``"passed"``, ``"failed"``, or ``"not applicable"`` where the config is not
        that of a preset, for which the checks are made) and the ``interval_level``.

        Args:
            report: What was found.
            **numbers: Further contents of ``result.json``, such as a timing.

        Returns:
            What a reader of ``result.json`` gets.
        """
        checked = self.launch.unmodified if self.launch else self.checked
        report.print(self.results, checked)
        for name, figure in self.track(report.figures.items(), "drawing"):
            self.save_figure(name, figure)
        # The times are kept apart from the result, which a resumed run must reproduce.
        self.write_json("timing.json", {"seconds": self.seconds})
        about = {
            "schema_version": SCHEMA_VERSION,
            "experiment": self.launch.name if self.launch else self.folder.parent.name,
            "verdict": report.verdict(checked),
            "interval_level": report.interval_level,
        }
        written = self.write_json(
            "result.json", {**about, **report.as_dict(), **numbers}
        )
        if self.writes and self.launch is not None:
            self.write_text("report.html", page(self.folder))
        total = time.perf_counter() - self._started
        if report.checks and not checked:
            self.console.print("checks are made for unmodified presets")
        self.console.print(f"{total:.0f} s; results and figures in {self.folder}")
        if self.writes and self.launch is not None:
            self.console.print(f"to read it: {self.folder / 'report.html'}")
        return written

    def write_json(self, name: str, value: Any) -> Any:
        """Writes a JSON file atomically.

        Returns:
            What a reader of the file gets.
        """
        text = json.dumps(plain(value), indent=1)
        self.write_text(name, text + "\n")
        return json.loads(text)

    def write_text(self, name: str, text: str) -> None:
        """Writes a text file atomically."""
        if not self.writes:
            return
        with self.replacing(name) as aside:
            aside.write_text(text)

    @contextlib.contextmanager
    def replacing(self, name: str) -> Iterator[Path]:
        """Yields a temporary path whose file is renamed to ``name`` at the end."""
        target = self.folder / name
        aside = target.with_name(f".writing_{target.name}")
        try:
            yield aside
            os.replace(aside, target)
        except OSError:
            aside.unlink(missing_ok=True)
            raise

    def reset_metrics(self, records: Iterable[dict[str, Any]]) -> None:
        """Replaces ``metrics.jsonl`` by these records, as after a resume."""
        self.write_text("metrics.jsonl", "".join(_line(r) for r in records))

    def log(self, record: dict[str, Any]) -> None:
        """Appends a record to ``metrics.jsonl``."""
        if self.writes:
            with (self.folder / "metrics.jsonl").open("a") as file:
                file.write(_line(record))

    def save_figure(self, name: str, figure: Any) -> Path:
        """Saves a matplotlib figure as PNG and SVG, and closes it.

        Args:
            name: The file name, with the ending ``.png``.
            figure: The figure.

        Returns:
            Where the PNG is.
        """
        path = self.folder / name
        if self.writes:
            for file, write in (
                (name, write_png),
                (path.with_suffix(".svg").name, write_svg),
            ):
                with self.replacing(file) as aside:
                    write(figure, aside)
                # The second file uses the layout that was computed for the first.
                figure.set_layout_engine("none")
        close(figure)
        return path


class _Console(Console):
    def on_broken_pipe(self) -> None:
        self.quiet = True  # the signal's handler ends the run, with a checkpoint


def _console(quiet: bool) -> Console:
    console = _Console(quiet=quiet)
    return console if console.is_terminal else _Console(quiet=quiet, width=120)


def _line(record: dict[str, Any]) -> str:
    return json.dumps(plain(record)) + "\n"


def _agreed_stamp() -> str:
    """Returns the start time to the microsecond, the same in every process."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    if jax.process_count() == 1:
        return stamp
    letters = np.frombuffer(stamp.encode(), np.uint8)
    agreed = multihost_utils.broadcast_one_to_all(letters)
    return bytes(np.asarray(agreed, np.uint8)).decode()
