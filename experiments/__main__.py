"""``python -m experiments`` lists the experiments, their presets and their times.

``python -m experiments --readme`` writes the same list into ``experiments/README.md``.
"""

import argparse
import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments import words_of

FOLDER = Path(__file__).parent
README = FOLDER / "README.md"
# The ledger has no preset and no page among the experiments: its time and its page.
_LEDGER = "3 to 6 min", "[page](../docs/reference/ledger.md)"
_HEAD = "| NAME | what it shows | time on 2 cores | result |\n|---|---|---|---|\n"


class Experiment(NamedTuple):
    """Name, first line of the docstring, and measured time of each preset, or None."""

    name: str
    summary: str
    presets: dict[str, str | None]


def experiments() -> list[Experiment]:
    """Lists all experiments in alphabetical order, without importing them."""
    folders = [path.parent for path in FOLDER.glob("*/__main__.py")]
    mark = re.compile(r"^@frame\.experiment\(", re.MULTILINE)
    files = [path for path in FOLDER.glob("*.py") if mark.search(path.read_text())]
    return [_read(path) for path in sorted([*folders, *files], key=lambda p: p.stem)]


def _read(path: Path) -> Experiment:
    start = path / "__init__.py" if path.is_dir() else path
    config = path / "config.py" if path.is_dir() else path
    text = ast.get_docstring(ast.parse(start.read_text())) or ""
    values = _constants(config) if config.exists() else {}
    times = values.get("TIMES", {})
    presets = {name: times.get(name) for name in values.get("PRESETS", {})}
    return Experiment(path.stem, text.splitlines()[0], presets)


def _constants(path: Path) -> dict[str, dict[Any, Any]]:
    """Reads dictionaries of literals, such as ``PRESETS``, from a module's source."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            pairs = zip(node.value.keys, node.value.values, strict=True)
            found[ast.unparse(node.targets[0])] = {
                getattr(key, "value", None): getattr(value, "value", None)
                for key, value in pairs
            }
    return found


def readme_table() -> str:
    """Returns the list in Markdown, with the time of each default preset."""
    lines = []
    for one in experiments():
        time = next(iter(one.presets.values()), None) or "not measured"
        page = f"[page](../docs/experiments/{one.name}.md)"
        last = time.removesuffix(", 2 cores"), page
        if one.name == "ledger":
            last = _LEDGER
        cells = f"`{one.name}`", one.summary.rstrip("."), *last
        lines.append(f"| {' | '.join(cells)} |\n")
    return _HEAD + "".join(lines)


def _write_readme() -> None:
    before, head, after = README.read_text().partition(_HEAD)
    if not head:
        raise ValueError(f"{README.name}: expected a table that begins with {_HEAD!r}")
    rest = after[after.index("\n\n") + 1 :]
    README.write_text(before + readme_table() + rest)


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the list, or writes it into the README."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="Lists the experiments, their presets and their times.",
    )
    parser.add_argument(
        "--readme", action="store_true", help="write it into experiments/README.md"
    )
    if parser.parse_args(argv).readme:
        _write_readme()
        return
    listed = experiments()
    width = max(len(one.name) for one in listed)
    for one in listed:
        time = next(iter(one.presets.values()), None) or "not measured"
        print(f"  {one.name:{width}}  {one.summary} [{time}]")
    line = " ".join(words_of("NAME"))
    print(f"{line} [--preset PRESET]; --help lists all options")


if __name__ == "__main__":
    main()
