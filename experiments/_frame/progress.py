"""Progress of a run: its current activity and the estimated time left.

In a terminal it is a bar for each activity; elsewhere a line at most every 20 seconds,
printed by a thread, so that a long compilation or a single long program is not silent.
"""

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import Progress, ProgressColumn, TextColumn
from rich.progress_bar import ProgressBar
from rich.text import Text

Item = TypeVar("Item")

INTERVAL = 20.0  # seconds between two lines
COMPILING = "compiling"


class Activity:
    """A task in progress: its label, stage, count and times.

    Args:
        label: What it is.
        total: How many units there are, if that is known.
        done: How many an earlier run has done.
        unit: What is counted.

    Attributes:
        stage: What is being done just now, such as ``"compiling"``; empty if the label
            says all.
        shown: Numbers to show, as they are to be printed.
    """

    def __init__(
        self, label: str, total: int | None = None, done: int = 0, unit: str = ""
    ):
        self.label, self.total, self.unit = label, total, unit
        self.done, self._first = done, done
        self.stage, self.shown = "", ""
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
    def seconds(self) -> float:
        """Seconds since the activity began."""
        return time.perf_counter() - self._begun

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
        counted = f"{self.done:,}{of} {self.unit}".rstrip() if of or self.done else ""
        left = self.seconds_left
        parts = (
            "" if self.label.startswith(self.stage) else self.stage,
            counted,
            self.shown,
            f"{self.seconds:.0f} s",
            "" if left is None else f"about {_duration(left)} left",
        )
        return ", ".join(part for part in parts if part)


class Display:
    """Displays the activities of a run, the innermost last.

    Args:
        console: Where it is shown.
    """

    def __init__(self, console: Console):
        self._console = console
        self._enabled = not console.quiet
        self._activities: list[Activity] = []
        self._bars: Progress | None = None
        self._ended: threading.Event | None = None

    @contextlib.contextmanager
    def during(self, activity: Activity) -> Iterator[Activity]:
        """Displays an activity for the duration of a ``with`` block."""
        self._activities.append(activity)
        if self._enabled and len(self._activities) == 1:
            self._start()
        bars = self._bars
        bar = None
        if bars is not None:
            bar = bars.add_task(activity.label, activity=activity)
        try:
            yield activity
        finally:
            self._activities.remove(activity)
            if bars is not None and bar is not None:
                bars.remove_task(bar)
            if not self._activities:
                self._stop()

    def _start(self) -> None:
        if self._console.is_terminal:
            label = TextColumn("{task.description}", markup=False)
            columns = (label, _Bar(), _State())
            self._bars = Progress(*columns, console=self._console, transient=True)
            self._bars.start()
        else:
            self._ended = threading.Event()
            thread = threading.Thread(target=self._lines, args=(self._ended,))
            thread.daemon = True
            thread.start()

    def _stop(self) -> None:
        if self._bars:
            self._bars.stop()
        if self._ended:
            self._ended.set()
        self._bars = self._ended = None

    def _lines(self, ended: threading.Event) -> None:
        while not ended.wait(INTERVAL):
            for activity in self._activities[-1:]:
                line = f"{activity.label}: {activity.state()}"
                self._console.print(line, highlight=False, markup=False)


class _Bar(ProgressColumn):
    def render(self, task: Any) -> ProgressBar:
        activity = task.fields["activity"]
        return ProgressBar(
            total=activity.total,
            completed=activity.done,
            width=20,
            pulse=activity.total is None or activity.stage == COMPILING,
            animation_time=task.get_time(),
        )


class _State(ProgressColumn):
    def render(self, task: Any) -> Text:
        return Text(task.fields["activity"].state())


def track(
    display: Display, items: Iterable[Item], activity: Activity
) -> Iterator[Item]:
    """Yields items and counts each item after it has been processed."""
    with display.during(activity):
        for item in items:
            yield item
            activity.advance()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
