"""``python -m experiments`` lists the experiments, their presets and their times."""

import ast
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).parent


class Experiment(NamedTuple):
    """What the list says of an experiment.

    Attributes:
        name: The name behind ``python -m experiments.``.
        summary: The first line of its documentation.
        presets: For each preset the measured time, or ``None``.
    """

    name: str
    summary: str
    presets: dict[str, str | None]


def experiments() -> list[Experiment]:
    """All experiments in alphabetical order, read without importing them."""
    folders = sorted(path.parent for path in FOLDER.glob("*/__main__.py"))
    return [_read(folder) for folder in folders]


def _read(folder: Path) -> Experiment:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    config = folder / "config.py"
    values = _constants(config) if config.exists() else {}
    times = values.get("TIMES", {})
    presets = {name: times.get(name) for name in values.get("PRESETS", {})}
    return Experiment(folder.name, (text or "").splitlines()[0], presets)


def _constants(path: Path) -> dict[str, dict[Any, Any]]:
    """``PRESETS`` and ``TIMES`` of a module; what is no literal is ``None``."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            pairs = zip(node.value.keys, node.value.values, strict=True)
            found[ast.unparse(node.targets[0])] = {
                getattr(key, "value", None): getattr(value, "value", None)
                for key, value in pairs
            }
    return found


def main() -> None:
    """Prints the list."""
    table = Table(title="python -m experiments.NAME [--preset PRESET] [--help]")
    for head in ("NAME", "what it shows", "PRESET", "time"):
        table.add_column(head, no_wrap=head != "what it shows")
    for one in experiments():
        times = (time or "not measured" for time in one.presets.values())
        table.add_row(one.name, one.summary, "\n".join(one.presets), "\n".join(times))
        table.add_section()
    Console().print(table)


if __name__ == "__main__":
    main()
