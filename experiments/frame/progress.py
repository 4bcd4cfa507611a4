"""Progress of a run: its current activity and the estimated time left.

In a terminal each activity has a bar; elsewhere a thread prints a line at most every 20
seconds, so that a long compilation or a single long program is not silent.
"""

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

Item = TypeVar("Item")
INTERVAL = 20.0  # seconds between two lines
COMPILING = "compiling"


class Activity:
    """A task in progress: its label, what it counts, and its speed.

    ``stage``, such as ``"compiling"``, and ``shown``, further numbers, may be empty.
    """

    def __init__(self, label: str, total: int | None = None, done=0, unit: str = ""):
        self.label, self.total, self.unit = label, total, unit
        self.done = self._first = done
        self.stage = self.shown = ""
        self._begun = self._since = time.perf_counter()
        self._working = 0.0

    def enter(self, stage: str) -> None:
        """Enters another stage; compile time does not count towards the speed."""
        self._working = self._seconds_working()
        self._since, self.stage = time.perf_counter(), stage

    def advance(self, count: int = 1) -> None:
        """Adds to the number of completed units."""
        self.done += count

    def follow(self, done: int, total: int, part: str) -> None:
        """Updates the activity from a library function's ``progress`` callback."""
        if done == 0:
            self._first, self._working = 0, 0.0
            self._since = time.perf_counter()
        self.done, self.total, self.stage = done, total, part

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds to the end; ``None`` before a speed is known."""
        counted = self.done - self._first
        if self.total is None or not counted:
            return None
        return (self.total - self.done) * self._seconds_working() / counted

    def _seconds_working(self) -> float:
        compiling = self.stage == COMPILING
        return self._working + (not compiling) * (time.perf_counter() - self._since)

    def state(self) -> str:
        """Stage, count, metrics and times in one line."""
        of = f" of {self.total:,}" if self.total is not None else ""
        unit = self.unit.removesuffix("s" * ((self.total or self.done) == 1))
        counted = f"{self.done:,}{of} {unit}".rstrip() if of or self.done else ""
        left = self.seconds_left
        parts = (
            "" if self.label.startswith(self.stage) else self.stage,
            counted,
            self.shown,
            f"{time.perf_counter() - self._begun:.0f} s",
            "" if left is None else f"about {_duration(left)} left",
        )
        return ", ".join(part for part in parts if part)


class Display:
    """Displays the activities of a run, the innermost last."""

    def __init__(self, console: Console):
        self._console = console
        self._activities: list[Activity] = []

    @contextlib.contextmanager
    def during(self, activity: Activity) -> Iterator[Activity]:
        """Displays an activity for the duration of a ``with`` block."""
        shown = contextlib.nullcontext()
        if not self._activities and not self._console.quiet:
            shown = self._bars() if self._console.is_terminal else self._lines()
        self._activities.append(activity)
        try:
            with shown:
                yield activity
        finally:
            self._activities.remove(activity)

    def track(self, items: Iterable[Item], activity: Activity) -> Iterator[Item]:
        """Yields items and counts each item after it has been processed."""
        with self.during(activity):
            for item in items:
                yield item
                activity.advance()

    def _bars(self) -> Live:
        def picture() -> Table:
            grid = Table.grid(padding=(0, 1))
            for one in list(self._activities):
                pulse = one.total is None or one.stage == COMPILING
                bar = ProgressBar(one.total, one.done, width=20, pulse=pulse)
                grid.add_row(Text(one.label), bar, Text(one.state()))
            return grid

        return Live(get_renderable=picture, console=self._console, transient=True)

    @contextlib.contextmanager
    def _lines(self) -> Iterator[None]:
        ended = threading.Event()

        def report() -> None:
            while not ended.wait(INTERVAL):
                for one in self._activities[-1:]:
                    line = f"{one.label}: {one.state()}"
                    self._console.print(line, highlight=False, markup=False)

        threading.Thread(target=report, daemon=True).start()
        try:
            yield
        finally:
            ended.set()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
