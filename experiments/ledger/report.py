"""Prints the ledger in the terminal and formats it as a page."""

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from experiments.ledger.rows import LedgerRow, number
from experiments.ledger.statement import Statement

__all__ = ["page", "print_rows", "write_whole"]

_COLOURS = {
    "exact": "green",
    "true": "green",
    "conditional": "yellow",
    "vacuous": "yellow",
    "reconstructed": "yellow",
    "false as written": "red",
    "empirical": "cyan",
    "no claim": "dim",
    "passed": "green",
    "FAILED": "bold red",
}


def print_rows(console: Console, rows: Sequence[LedgerRow]) -> None:
    """Prints one table per paper."""
    for paper in dict.fromkeys(row.statement.paper for row in rows):
        table = Table(title=paper, show_lines=True, title_justify="left", expand=True)
        table.add_column("statement", ratio=5)
        table.add_column("status; evidence; corrected form", ratio=6)
        table.add_column("function; test", ratio=8, overflow="fold")
        table.add_column("measured now", ratio=6)
        for row in rows:
            if row.statement.paper == paper:
                table.add_row(*_cells(row))
        console.print(table)


def _cells(row: LedgerRow) -> list[str]:
    said, status = row.statement, row.statement.status
    functions = "\n".join(f"[cyan]{escape(name)}[/]" for name in said.functions)
    tests = "\n".join(escape(_short(test)) for test in said.tests)
    outcome = _coloured(row.verdict, row.outcome)
    known = f"{_coloured(status, status)}; {said.evidence}"
    return [
        f"[bold]{escape(said.label)}[/]\n{escape(said.says)}",
        f"{known}\n{escape(said.corrected)}".strip(),
        f"{functions}\n{tests}".strip(),
        "\n".join([outcome, *(escape(number(item)) for item in row.measured)]),
    ]


def _coloured(kind: str, text: str) -> str:
    colour = _COLOURS.get(kind)
    return f"[{colour}]{text}[/]" if colour else text


def _short(test: str) -> str:
    """Shortens a test's name by the folder and prefix that all tests share."""
    file, name = test.split("::")
    file = file.removeprefix("tests/").removeprefix("test_").removesuffix(".py")
    return f"{file}: {name.removeprefix('test_')}"


def page(rows: Sequence[LedgerRow], heading: Sequence[str]) -> str:
    """Returns the ledger in Markdown.

    Args:
        rows: Its lines.
        heading: Paragraphs below the title.

    Returns:
        The text of the page.
    """
    lines = ["# The ledger", ""]
    for paragraph in heading:
        lines += [paragraph, ""]
    titles = ("statement", "says", "status", "evidence", "corrected form")
    titles = (*titles, "function", "test", "measured")
    for paper in dict.fromkeys(row.statement.paper for row in rows):
        lines += [f"## {paper}", "", _line(titles), "|---" * len(titles) + "|"]
        lines += [_line(_page_cells(r)) for r in rows if r.statement.paper == paper]
        lines.append("")
    return "\n".join(lines)


def _page_cells(row: LedgerRow) -> list[str]:
    said = row.statement
    tests = "<br>".join(
        f"[`{pattern.split('::')[1]}`]({pattern.split('::')[0]})"
        for pattern in said.patterns
    )
    return [
        _plain(said.label),
        _plain(said.says),
        said.status,
        _evidence(said),
        _plain(said.corrected),
        "<br>".join(f"`{name}`" for name in said.functions),
        tests or "none",
        "<br>".join([row.outcome, *(_plain(number(item)) for item in row.measured)]),
    ]


def _evidence(said: Statement) -> str:
    """Formats the kind of evidence with a link to the proof or with its citation."""
    if not said.source:
        return said.evidence
    if said.derivation:
        return f"[{said.evidence}]({said.derivation})"
    return f"{said.evidence}: {_plain(said.source)}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _plain(text: str) -> str:
    """Escapes characters that Markdown would read as markup."""
    for letter in ("\\", "*", "_", "<", "[", "~"):
        text = text.replace(letter, f"\\{letter}")
    return text


def write_whole(path: Path, text: str) -> None:
    """Writes a file atomically."""
    aside = path.with_name(f".writing_{path.name}")
    try:
        aside.write_text(text)
        os.replace(aside, path)
    except OSError as error:
        raise ValueError(
            f"output: expected a file that can be written, got {path} "
            f"({error.strerror})"
        ) from error
    finally:
        if aside.is_file():
            aside.unlink()
