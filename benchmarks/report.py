"""Writes results as Markdown, and inserts them into the README.

Command
    python -m benchmarks.report RESULTS.json            # prints it
    python -m benchmarks.report RESULTS.json --readme   # replaces the README's tables
"""

import argparse
import sys
from pathlib import Path

from benchmarks import _results, _table
from benchmarks._results import Results

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- results: {} -->", "<!-- end of results -->"


def render(results: Results) -> str:
    """Returns all rows as Markdown under a description of the machine."""
    peaks = "; ".join(_table.fact(*peak) for peak in results.about["peaks"].items())
    revision = results.about["revision"]
    head = (
        f"`{results.about['command']}`, {results.about['seconds']:.0f} s: "
        f"{results.title}, revision {revision}{results.warning}.\nPeaks: {peaks}.\n"
    )
    return f"{head}\n{_table.markdown(results.rows)}"


def section(path: Path) -> str:
    """Returns the README's section of results, with its begin and end marks."""
    body = render(_results.load(path))
    picture = f"![Ratios and shares of the floor](results/{path.stem}.png)"
    return f"{BEGIN.format(path.name)}\n{body}\n{picture}\n{END}"


def replaced(text: str, path: Path) -> str:
    """Returns the README's text with its results section replaced.

    Raises:
        ValueError: If it has no marks.
    """
    start, marker = text.find(BEGIN.split("{")[0]), text.find(END)
    if start < 0 or marker < start:
        places = sorted([(start, BEGIN), (marker, END)])
        found = " and then ".join(mark for place, mark in places if place >= 0)
        raise ValueError(
            f"README: expected the marks {BEGIN} and then {END}, got "
            f"{found or 'neither'}; add them where the results belong"
        )
    return text[:start] + section(path) + text[marker + len(END) :]


def main(argv: list[str] | None = None) -> int:
    """Prints the results or updates the README, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report")
    parser.add_argument("results", type=Path)
    parser.add_argument("--readme", action="store_true")
    args = parser.parse_args(argv)
    try:
        if args.readme:
            text = replaced(README.read_text(), args.results)
            aside = README.with_name(f".writing_{README.name}")
            aside.write_text(text)
            aside.replace(README)
        else:
            print(section(args.results))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
