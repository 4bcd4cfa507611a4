"""A run of an experiment: its folder, its phases and its console output."""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from rich.console import Console

import icltheory
from experiments.frame.command_line import Launch
from experiments.frame.config import expect, experiment_of
from experiments.frame.exits import continue_with
from experiments.frame.progress import Activity, Display
from experiments.frame.report import Report, page
from icltheory.runs import plain

# Version of ``result.json``, which increases when a value changes its name or meaning.
SCHEMA_VERSION = 1
Item = TypeVar("Item")
_EXPERIMENTS = Path(__file__).parents[1]
_SMALL_LM = _EXPERIMENTS / "small_lm" / "checkpoint" / "model.safetensors"


class Run:
    """The folder ``OUTPUT/NAME/STAMP`` of one run, and its console output.

    Of several processes only the first writes and prints; the others see the folder.
    """

    def __init__(self, folder: Path, launch: Launch | None = None):
        self.folder, self.launch = folder, launch
        self.writes = jax.process_index() == 0
        self.seconds: dict[str, float] = {}  # wall time of each phase
        quiet = launch is not None and launch.options.quiet
        self.results = _Console(not self.writes)  # for warnings, tables and verdicts
        self.console = _Console(True) if quiet else self.results  # about progress
        self._display = Display(self.console)
        self._started = time.perf_counter()

    @classmethod
    def begin(cls, launch: Launch) -> "Run":
        """Begins a run as the command line says, new or continued, and says what."""
        run, options = cls(launch.options.resume or Path(), launch), launch.options
        about = experiment_of(launch.config)[1]
        if options.resume is None:
            where = (options.output, launch.name, launch.preset, launch.config)
            run.folder = cls.create(*where, about=about, command=launch.command).folder
        continue_with(launch.continuing(run.folder))
        count = f"{jax.device_count()} x " if jax.device_count() > 1 else ""
        run.console.print(
            f"{launch.name}, preset {launch.preset}: {about.rstrip('.')}, on {count}"
            f"{jax.devices()[0].device_kind}\nwriting to {run.folder}"
        )
        return run

    @classmethod
    def create(
        cls, output: Path, name: str, preset: str, config: Any, **about: str
    ) -> "Run":
        """Creates the folder of a new run and writes its config and environment."""
        where = output.absolute()
        # Orbax treats its path as a glob pattern, and could not read checkpoints there.
        plain_path = not set("[]") & set(str(where))
        expect(plain_path, "output", "a path without [ and ]", where)
        run = cls(output / name / _agreed_stamp())
        try:
            if run.writes:
                run.folder.mkdir(parents=True)
        except OSError as error:
            raise ValueError(
                f"output: expected a folder that can be written, got {output} "
                f"({error.strerror})"
            ) from error
        about = {"experiment": name, "preset": preset, **about}
        run._write_config(about, config, environment=environment())
        return run

    def _write_config(self, stored: dict[str, Any], config: Any, **more: Any) -> None:
        # Python's JSON keeps infinities, so that they can be read back from the config.
        stored = {**stored, "config": dataclasses.asdict(config), **more}
        self.write_text("config.json", json.dumps(stored, indent=1) + "\n")

    def extend(self) -> bool:
        """Stores the config with more steps if the command line extends the run.

        It is called once the checkpoints are known to fit, so that a refused extension
        leaves the run as it was.
        """
        if self.launch is None or not self.launch.extends:
            return False
        stored = json.loads((self.folder / "config.json").read_text())
        command = f"{stored.get('command', '')}\n{self.launch.command}".lstrip()
        self._write_config({**stored, "command": command}, self.launch.config)
        return True

    def warn(self, line: str) -> None:
        """Prints a warning."""
        self.results.print(f"[yellow]warning:[/] {line}")

    def progress(
        self, label: str, total: int | None = None, *, done: int = 0, unit: str = ""
    ) -> contextlib.AbstractContextManager[Activity]:
        """Shows an activity; its ``advance`` counts, its ``enter`` names the stage."""
        return self._display.during(Activity(label, total, done, unit))

    def track(
        self, items: Iterable[Item], label: str, unit: str = ""
    ) -> Iterator[Item]:
        """Yields a known number of items and shows how many are left."""
        items = list(items)
        return self._display.track(items, Activity(label, len(items), unit=unit))

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Shows a phase of the run, measures its wall time and prints it at the end."""
        begun = time.perf_counter()
        with self.progress(name):
            yield
        self.seconds[name] = time.perf_counter() - begun
        self.console.print(f"{name}: {self.seconds[name]:.1f} s")

    def finish(self, report: Report, **numbers: Any) -> dict[str, Any]:
        """Prints a report, writes figures, ``result.json`` and ``report.html``.

        Returns the contents of ``result.json``, the report and ``numbers`` among them.
        """
        checked = self.launch is None or self.launch.unmodified
        report.print(self.results, checked)
        for name, figure in self.track(report.figures.items(), "drawing"):
            self.save_figure(name, figure)
        # The times are kept apart from the result, which a resumed run must reproduce.
        self.write_json("timing.json", {"seconds": self.seconds})
        result = {
            "schema_version": SCHEMA_VERSION,
            "experiment": self.launch.name if self.launch else self.folder.parent.name,
            "verdict": report.verdict(checked),
            "interval_level": report.interval_level,
        }
        written = self.write_json(
            "result.json", {**result, **report.as_dict(), **numbers}
        )
        if report.checks and not checked:
            self.console.print("checks are made for unmodified presets")
        total = time.perf_counter() - self._started
        self.console.print(f"{total:.0f} s; results and figures in {self.folder}")
        if self.writes and self.launch is not None:
            self.write_text("report.html", page(self.folder, report, self.launch))
            self.console.print(f"to read it: {self.folder / 'report.html'}")
        return written

    def write_json(self, name: str, value: Any) -> Any:
        """Writes a JSON file atomically; returns what a reader of the file gets."""
        text = json.dumps(plain(value), indent=1)
        self.write_text(name, text + "\n")
        return json.loads(text)

    def write_text(self, name: str, text: str) -> None:
        """Writes a text file atomically."""
        if self.writes:
            with self._replacing(name) as aside:
                aside.write_text(text)

    @contextlib.contextmanager
    def _replacing(self, name: str) -> Iterator[Path]:
        """Yields a temporary path whose file is renamed to ``name`` at the end."""
        aside = self.folder / f".writing_{name}"
        try:
            yield aside
            os.replace(aside, self.folder / name)
        except OSError:
            aside.unlink(missing_ok=True)
            raise

    def reset_metrics(self, records: Iterable[dict[str, Any]]) -> None:
        """Replaces ``metrics.jsonl`` by these records, as after a resume."""
        self.write_text("metrics.jsonl", "".join(map(_line, records)))

    def log(self, record: dict[str, Any]) -> None:
        """Appends a record to ``metrics.jsonl``."""
        if self.writes:
            with (self.folder / "metrics.jsonl").open("a") as file:
                file.write(_line(record))

    def save_figure(self, name: str, figure: Any) -> Path:
        """Saves a figure as a PNG of 256 colours and a reproducible SVG; closes it."""
        import matplotlib.pyplot as plt
        from PIL import Image

        path, full = self.folder / name, io.BytesIO()
        if self.writes:
            figure.savefig(full, format="png")
            # Dithering would draw dots in plain areas.
            exact, dither = Image.open(full).convert("RGB"), Image.Dither.NONE
            with self._replacing(name) as aside:
                exact.quantize(256, dither=dither).save(aside, "png", optimize=True)
            # The second file uses the layout that was computed for the first.
            figure.set_layout_engine("none")
            # Text as paths looks the same on machines without the font.
            fixed = {"svg.hashsalt": "icltheory", "svg.fonttype": "path"}
            svg = self._replacing(path.with_suffix(".svg").name)
            with plt.rc_context(fixed), svg as aside:
                figure.savefig(aside, format="svg", metadata={"Date": None})
        plt.close(figure)
        return path


class _Console(Console):
    """A console that is wide enough for tables also where it is no terminal."""

    def __init__(self, quiet: bool):
        super().__init__(quiet=quiet)
        if not self.is_terminal:
            self.width = 120

    def on_broken_pipe(self) -> None:
        self.quiet = True  # the signal's handler ends the run, with a checkpoint


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


def environment() -> dict[str, Any]:
    """Returns versions, device and revision of this process, for ``config.json``."""
    command, revision = ["git", "describe", "--always", "--dirty"], None
    look = {"capture_output": True, "text": True, "check": True, "timeout": 10}
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        found = subprocess.run(command, cwd=_EXPERIMENTS, **look)
        revision = found.stdout.strip()
    return {
        "icltheory": icltheory.__version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
        "num_devices": len(jax.devices()),
        "cores": cores_usable(),
        "revision": revision,
        "small_lm": small_lm_digest(),
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def cores_usable() -> int:
    """Returns the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def small_lm_digest() -> str | None:
    """First digits of the SHA-256 of the shipped language model's weights."""
    if not _SMALL_LM.exists():
        return None
    return hashlib.sha256(_SMALL_LM.read_bytes()).hexdigest()[:12]
