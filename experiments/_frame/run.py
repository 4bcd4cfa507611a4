"""A run: its folder, whose files are whole or absent, its phases and its console."""

import contextlib
import dataclasses
import functools
import json
import os
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from experiments._frame.command_line import Launch
from experiments._frame.environment import environment
from experiments._frame.pictures import write_png, write_svg
from experiments._frame.report import Report
from icltheory.batching import Progress
from icltheory.strict_json import plain


class Run:
    """The folder ``OUTPUT/NAME/STAMP`` of one run, and what it prints.

    Of several processes only the first writes and prints; the others see the folder.

    Attributes:
        folder: Where the files are.
        writes: Whether this process writes and prints.
        seconds: Wall time of each phase.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.writes = jax.process_index() == 0
        self.seconds: dict[str, float] = {}
        self._started = time.perf_counter()

    @classmethod
    def begin(cls, launch: Launch, summary: str) -> "Run":
        """The run that a command line asked for, a new one or one to continue.

        Args:
            launch: The command line.
            summary: What is computed, for the first line that is printed.
        """
        if launch.resume is not None:
            run = cls(launch.resume)
        else:
            run = cls.create(launch.output, launch.name, launch.preset, launch.config)
        count = f"{jax.device_count()} x " if jax.device_count() > 1 else ""
        run.console.print(
            f"{launch.name}, preset {launch.preset}: {summary}, on {count}"
            f"{jax.devices()[0].device_kind}\nwriting to {run.folder}"
        )
        return run

    @classmethod
    def create(cls, output: Path, name: str, preset: str, config: Any) -> "Run":
        """Makes the folder of a new run and writes its config.

        Raises:
            ValueError: if the folder cannot be made.
        """
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

    @functools.cached_property
    def console(self) -> Console:
        """A console wide enough for the tables also where the output is no terminal."""
        console = Console(quiet=not self.writes)
        return (
            console if console.is_terminal else Console(quiet=console.quiet, width=120)
        )

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measures the wall time of a part of the run, and prints it at its end."""
        begun = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - begun
        self.console.print(f"{name}: {self.seconds[name]:.1f} s")

    @contextlib.contextmanager
    def progress(self, name: str) -> Iterator[Progress]:
        """Shows a bar for computations that report their progress."""
        numbers = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        columns = (TextColumn("{task.description}"), *numbers)
        hidden = not self.writes or not self.console.is_terminal
        options = {"console": self.console, "disable": hidden, "transient": True}
        with Bars(*columns, **options) as bar:
            task = bar.add_task(name, total=None)

            def show(done: int, total: int, part: str) -> None:
                said = f"{name}: {part}" if part else name
                bar.update(task, completed=done, total=total, description=said)

            yield show

    def finish(self, report: Report, **numbers: Any) -> dict[str, Any]:
        """Prints a report, saves its figures and writes ``result.json``.

        Args:
            report: What was found.
            **numbers: Further contents of ``result.json``, such as a timing.

        Returns:
            What a reader of ``result.json`` gets.
        """
        report.print(self.console)
        for name, figure in report.figures.items():
            self.save_figure(name, figure)
        # Apart from the result, which a resumed run must reproduce.
        self.write_json("timing.json", {"seconds": self.seconds})
        written = self.write_json("result.json", {**report.as_dict(), **numbers})
        total = time.perf_counter() - self._started
        self.console.print(f"{total:.0f} s; results and figures in {self.folder}")
        return written

    def write_json(self, name: str, value: Any) -> Any:
        """Writes a file whole or not at all.

        Returns:
            What a reader of the file gets.
        """
        text = json.dumps(plain(value), indent=1)
        self.write_text(name, text + "\n")
        return json.loads(text)

    def write_text(self, name: str, text: str) -> None:
        """Writes a file whole or not at all."""
        if not self.writes:
            return
        with self.replacing(name) as aside:
            aside.write_text(text)

    @contextlib.contextmanager
    def replacing(self, name: str) -> Iterator[Path]:
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
        """Saves a matplotlib figure as PNG and, beside it, as SVG.

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
        return path


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
