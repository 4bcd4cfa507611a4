"""Prints the table of ratios of a stored run, or writes it into the README.

Command
    python -m benchmarks RESULTS.json                        # prints the table
    python -m benchmarks RESULTS.json --before BEFORE.json   # beside earlier ratios
    python -m benchmarks RESULTS.json --readme               # replaces the README's

``pytest benchmarks --benchmark-json RESULTS.json`` writes such a file.
"""

import argparse
import sys
from pathlib import Path

from benchmarks import table

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- results: {} -->", "<!-- end of results -->"


def section(path: Path) -> str:
    """Returns the README's section of results, with its begin and end marks."""
    stored = table.load(path)
    body = f"{table.heading(stored)}\n{table.markdown(stored['benchmarks'])}"
    return f"{BEGIN.format(path.name)}\n{body}{END}"


def replaced(text: str, path: Path) -> str:
    """Returns the README's text with its results section replaced."""
    before, after = text.split(BEGIN.split("{")[0], 1)
    return before + section(path) + after.split(END, 1)[1]


def main(argv: list[str] | None = None) -> int:
    """Prints the results or updates the README, and returns the exit status."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("results", type=Path)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--readme", action="store_true")
    args = parser.parse_args(argv)
    try:
        stored = table.load(args.results)
        before = table.load(args.before)["benchmarks"] if args.before else ()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if args.readme:
        README.write_text(replaced(README.read_text(), args.results))
    else:
        print(table.heading(stored))
        print(table.markdown(stored["benchmarks"], before))
    return 0


if __name__ == "__main__":
    sys.exit(main())
