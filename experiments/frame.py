"""What every experiment is made of: presets, a run, a report.

An experiment is one file: its docstring is its page in the list, a frozen dataclass its
config and, by the comments beside the fields, its command line; ``PRESETS`` and
``TIMES`` are dictionaries; the function marked with :func:`experiment` measures and
returns a :class:`Report`. The last line is ``program(__name__, main)``.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rich.table import Table

from experiments._frame.command_line import parse
from experiments._frame.extend import depends_on_all_steps
from experiments._frame.fields import check_at_least, check_seeds, expect
from experiments._frame.interrupts import Interrupt, deferred
from experiments._frame.looks import key, layer_marker, name_ends, rates_axis
from experiments._frame.looks import page as figure
from experiments._frame.options import Flags
from experiments._frame.processes import Processes
from experiments._frame.program import continue_with, run_program
from experiments._frame.progress import Activity, Display
from experiments._frame.report import Check, Claim, Report, largest
from experiments._frame.run import Run
from experiments._frame.stored import read_config
from experiments._frame.tyro_line import read_line
from icltheory.plotting import STYLE

__all__ = [
    "Activity",
    "Check",
    "Claim",
    "Display",
    "Flags",
    "Interrupt",
    "Processes",
    "Report",
    "Run",
    "check_at_least",
    "check_seeds",
    "continue_with",
    "deferred",
    "depends_on_all_steps",
    "expect",
    "experiment",
    "figure",
    "key",
    "largest",
    "layer_marker",
    "name_ends",
    "panels",
    "program",
    "rates_axis",
    "read_config",
    "read_line",
    "table",
]


def experiment(
    presets: Mapping[str, Any],
    flags: Flags | None = None,
    check: Callable[[Any, Any], None] = lambda config, flags: None,
) -> Callable[[Callable[..., Report]], Callable[..., dict]]:
    """Marks ``main(config, run)``, which returns a report, as an experiment.

    The marked function takes the words of a command line and returns what it wrote to
    ``result.json``. With ``flags`` it is ``main(config, run, flags)``, and ``check``
    raises where they do not fit the config, before anything is written.
    """

    def mark(body: Callable[..., Report]) -> Callable[..., dict]:
        @functools.wraps(body)
        def main(argv: list[str] | None = None) -> dict:
            launch = parse(presets, argv, flags=flags)
            check(launch.config, launch.flags)
            run = Run.begin(launch, _first_line(body))
            more = () if flags is None else (launch.flags,)
            return run.finish(body(launch.config, run, *more))

        return main

    return mark


def program(name: str, main: Callable[[], Any]) -> None:
    """Runs the experiment where its file is the program."""
    if name == "__main__":
        run_program(main)


def table(
    rows: Iterable[Mapping[str, Any]],
    columns: Mapping[str, str],
    title: str = "",
    caption: str = "",
) -> Table:
    """A table of rows, each column a head and a format such as ``"{risk:.3f}"``."""
    made = Table(title=title or None, caption=caption or None)
    for place, head in enumerate(columns):
        made.add_column(head, justify="right" if place else "left", no_wrap=not place)
    for row in rows:
        made.add_row(*(cell.format_map(row) for cell in columns.values()))
    return made


@contextlib.contextmanager
def panels(
    rows: int = 1, columns: int = 1, title: str = "", **subplots: Any
) -> Iterator[tuple[Any, Any]]:
    """A figure in the common style and its axes, with a title once they are drawn.

    ``subplots`` are further options of ``matplotlib.pyplot.subplots``.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(rows, columns, **subplots)
        yield figure, axes
        if title:
            figure.suptitle(title, fontsize=10)


def _first_line(body: Callable) -> str:
    return (body.__globals__["__doc__"] or "").partition("\n")[0].rstrip(".")
