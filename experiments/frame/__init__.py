"""What every experiment is made of: presets, a run, a report.

An experiment is one file: its docstring is its page in the list, a frozen dataclass its
config and, by the comments beside the fields, its command line; ``PRESETS`` and
``TIMES`` are dictionaries; the function marked with :func:`experiment` measures and
returns a :class:`Report`. The last line is ``program(__name__, main)``.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from experiments.frame import slurm
from experiments.frame.command_line import Flags, Processes, parse, read_line, swept
from experiments.frame.config import (
    check_ascending,
    check_at_least,
    check_each,
    check_seeds,
    depends_on_all_steps,
    expect,
    read_config,
)
from experiments.frame.exits import Interrupt, continue_with, deferred, run_program
from experiments.frame.figures import (
    WIDTH,
    figure,
    key,
    layer_marker,
    panels,
    plain_words,
)
from experiments.frame.progress import Activity, Display
from experiments.frame.report import Check, Claim, Report, largest
from experiments.frame.run import Run
from icltheory.plotting.panels import name_ends

__all__ = ["Check", "Claim", "Flags", "Report", "Run", "experiment", "program"]
__all__ += ["check_ascending", "check_at_least", "check_each", "check_seeds"]
__all__ += ["expect", "largest", "table"]
__all__ += ["Activity", "Display", "Interrupt", "Processes", "continue_with"]
__all__ += ["deferred", "depends_on_all_steps", "read_config", "read_line"]
__all__ += ["WIDTH", "figure", "key", "layer_marker"]
__all__ += ["name_ends", "panels", "plain_words"]


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
            first, *others = swept(sys.argv[1:] if argv is None else argv)
            if others:  # every line is read before the first one runs
                for line in (first, *others):
                    here = list(slurm.without_options(line))
                    read = parse(presets, here, flags=flags)
                    if here == line:  # on the machine that it will run on
                        check(read.config, read.flags)
            launch = parse(presets, first, flags=flags, others=others)
            found = one(launch, others)
            for place, line in enumerate(others, 1):
                later = one(parse(presets, line, flags=flags), others[place:])
                found = later if later["verdict"] == "failed" else found
            if others and not launch.options.quiet:
                print(f"to compare them: icltheory runs {launch.options.output}")
            return found

        def one(launch: Any, rest: Sequence[list[str]]) -> dict:
            check(launch.config, launch.flags)
            run = Run.begin(launch)
            if rest:
                lines = (launch.line(*words) for words in rest)
                continue_with("; then ".join((launch.continuing(run.folder), *lines)))
            more = () if flags is None else (launch.flags,)
            return run.finish(body(launch.config, run, *more))

        return main

    return mark


def program(name: str, main: Callable[[], Any]) -> None:
    """Runs the experiment where its file is the program."""
    if name == "__main__":
        run_program(main)


def table(
    rows: Iterable[Any],
    columns: Mapping[str, str] | tuple[str, str] | list[str] | None = None,
    title: str = "",
) -> Table:
    """A table of rows, each column a head and a format such as ``"{risk:.3f}"``.

    Columns may be two lines as well, ``("N | risk", "{N} | {risk:.3f}")``, or heads
    alone, whose cells are not broken; without columns the first row has the heads.
    """
    made, rows = Table(title=title or None), list(rows)
    if isinstance(columns, tuple):
        columns = dict(zip(*(line.split(" | ") for line in columns), strict=True))
    for place, head in enumerate(columns or next(iter(rows), {})):
        whole = not place or isinstance(columns, list)
        made.add_column(head, justify="right" if place else "left", no_wrap=whole)
    for row in rows:
        cells = row.values() if isinstance(row, Mapping) else row
        if isinstance(columns, Mapping):
            cells = (cell.format_map(row) for cell in columns.values())
        made.add_row(*map(str, cells))
    return made
