"""The command line of the ledger."""

import dataclasses
import platform
import time
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from experiments._frame.cores import cores_usable
from experiments._frame.tyro_line import read_line
from experiments.ledger.collect import claimed, orphans
from experiments.ledger.measure import Session, run_tests
from experiments.ledger.report import page, print_rows, write_whole
from experiments.ledger.rows import make_rows, summary
from experiments.ledger.statement import IDENTITIES, Statement
from experiments.ledger.statements import STATEMENTS

__all__ = ["main"]

ROOT = Path(__file__).parents[2]
LEGEND = (
    "Status: *exact* is an identity or a definition that holds to rounding; *true* an "
    "inequality or a property with a proof; *conditional* holds under the condition "
    "given; *vacuous* says nothing, because its assumption never holds; "
    "*reconstructed* has a source whose text is lost or was recalled, so that the form "
    "here need not be the printed one; *false as written* has a counter-example, and "
    "holds in the corrected form where there is one; *empirical* is an observation, no "
    "theorem; *no claim* is a picture or a list.",
    "Evidence is the strongest kind there is for what the row says: *proof*, written "
    "out on the page that is linked or in the paper that is cited; *symbolic* algebra; "
    "*exact arithmetic*; *numerical* agreement to the tolerance of the test; "
    "*simulation*, with its noise; or *none*. Only the first shows a statement for all "
    "cases.",
    "Behind the outcome stands the number of cases that passed. A number is the "
    "largest in absolute value over those cases. A z is a difference in standard "
    "errors; five is where a test fails. Numbers near 1e-16 are rounding and differ "
    "by machine.",
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the ledger.

    Attributes:
        output: The page that is written; LEDGER.md of the repository unless given.
        quick: Run the quick tests only.
        processes: Processes that run the tests, as pytest-xdist takes it.
    """

    output: Path | None = None
    quick: bool = False
    processes: str | None = None


def main(
    argv: Sequence[str] | None = None,
    statements: Sequence[Statement] = STATEMENTS,
    root: Path = ROOT,
) -> int:
    """Runs the tests, prints the ledger and writes its page.

    Args:
        argv: Command line; that of the process when left out.
        statements: The statements, in order.
        root: Folder below which the tests stand.

    Returns:
        0, or 1 if a test failed, could not be run, or belongs to no statement.
    """
    options = read_line(
        Options(), argv, name="ledger", about=__doc__.partition("\n")[0]
    )
    output = root / "LEDGER.md" if options.output is None else options.output
    if not output.parent.is_dir():
        raise ValueError(f"output: expected a file in a folder, got {output}")
    console = Console()
    console = console if console.is_terminal else Console(width=160)
    start = time.perf_counter()
    with console.status("running the identity tests"):
        session = run_tests(
            targets(statements, root),
            root,
            quick=options.quick,
            processes=options.processes,
        )
    seconds = time.perf_counter() - start
    rows = make_rows(statements, session, root)
    print_rows(console, rows)
    lost = orphans(statements, root)
    heading = [_made(rows, session, seconds, options.quick), *LEGEND]
    write_whole(output, page(rows, heading))
    for name in lost:
        console.print(f"no statement claims {name}", style="red", markup=False)
    if not session.healthy:
        console.print(session.output, markup=False, highlight=False)
        console.print("some tests failed or could not be run", style="bold red")
    console.print(f"{summary(rows)}\n{seconds:.0f} s; page: {output}", highlight=False)
    return 0 if session.healthy and not lost else 1


def targets(statements: Sequence[Statement], root: Path) -> list[str]:
    """Returns the folder of identity tests, and every other test of a statement."""
    names = dict.fromkeys(n for said in statements for n in claimed(said, root))
    return [IDENTITIES, *(n for n in names if not n.startswith(f"{IDENTITIES}/"))]


def _made(rows, session: Session, seconds: float, quick: bool) -> str:
    # Versions are read by package name, so that the ledger loads none of these
    # libraries.
    return (
        f"Written by `python -m experiments.ledger{' --quick' if quick else ''}` on "
        f"{date.today():%Y-%m-%d}: {summary(rows)}. "
        f"{len(session.cases)} tests in {seconds:.0f} s on {cores_usable()} cores, "
        f"jax {version('jax')}, Python {platform.python_version()}, float64. "
        "Do not edit: run it again."
    )
