"""The command ``icltheory``: experiments, stored runs, pruning, the ledger."""

import contextlib
import difflib
import runpy
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from icltheory import runs
from icltheory.runs.experiments import experiment, make_importable

__all__ = ["main"]

_USAGE = """icltheory COMMAND ...

  run NAME ...          runs an experiment; without NAME it lists them
  runs [FOLDER]         lists the runs in ./runs
  runs compare A B      what differs between two of them
  runs index [FOLDER]   writes runs/index.html
  runs tensorboard [FOLDER]   writes curves for TensorBoard, until Ctrl-C
  prune MODEL ...       tests a pruned language model, or searches for a pruning
  ledger [WORD ...]     statements of the papers that contain the words

`icltheory run NAME --help` and `icltheory prune --help` say more."""


_PRUNE = """icltheory prune MODEL --csv FILE --text COLUMN --label COLUMN [OPTIONS]

  with --prune LAYER:MATRICES:STRENGTH ..., such as --prune 28:mlp:0.9, it compares
  the pruned model with the unpruned one on the test examples; without, it searches
  for a pruning on the validation examples and tests the choice once. MODEL is a name
  on the hub, a folder or a GGUF file. The options of the {mode}:
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    commands = {"run": _run, "runs": _runs, "prune": _prune, "ledger": _ledger}
    first = words[:1] if words[:1] == ["prune"] else words[:2]  # it has a page itself
    if not words or {"-h", "--help"} & {*first}:
        print(_USAGE)
        return 0
    if words[0] not in commands:
        known = ", ".join(commands)
        print(f"command: expected one of {known}, got {words[0]!r}", file=sys.stderr)
        return 2
    try:
        return commands[words[0]](words[1:])
    except (ValueError, OSError, ImportError) as error:
        print(error, file=sys.stderr)
        return 2


def _run(words: list[str]) -> int:
    listed = experiment("__main__")
    if not words or words[0].startswith("-"):
        listed.main(words)
        return 0
    names = [one.name for one in listed.experiments()]
    if words[0] not in names:
        near = difflib.get_close_matches(words[0], names, 1)
        expected = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
        raise ValueError(f"NAME: no experiment has the name {words[0]!r}; {expected}")
    return _as_program(f"experiments.{words[0]}", words[1:])


def _as_program(name: str, words: list[str]) -> int:
    """Runs a module as ``python -m`` does, and returns its exit status."""
    sys.argv = [name.rpartition(".")[2], *words]
    sys.modules.pop(name, None)  # it runs as a program, whatever imported it
    try:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _runs(words: list[str]) -> int:
    if words[:1] == ["compare"] and len(words) == 3:
        a, b = (runs.load(_folder(one)) for one in words[1:])
        _table(("", a.name, b.name), [row.values() for row in runs.compare(a, b)])
        for one in (a, b):
            if not one.result:
                print(f"{one.name} has not ended, so it has no measurements")
    elif words[:1] == ["index"]:
        print(runs.write_index(*words[1:2]))
    elif words[:1] == ["tensorboard"]:
        _follow(*words[1:2])
    elif not words or Path(words[0]).is_dir():
        head = ("run", "preset and settings", "verdict", "time", "measured")
        _table(head, [runs.summary(one, 2) for one in runs.find(*words[:1])])
    else:
        known, given = "compare A B, index, tensorboard or a folder", " ".join(words)
        raise ValueError(f"runs: expected {known}, got {given}")
    return 0


def _follow(root: str = "runs") -> None:
    """Writes event files every ten seconds while a run below the folder goes on."""
    written: dict[Path, int] = {}
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            before, written = written, runs.write_tensorboard(root, written)
            if written != before:
                print(f"{sum(written.values())} records; tensorboard --logdir {root}")
            if all(one.result for one in runs.find(root)):
                break
            time.sleep(10)


def _folder(name: str) -> Path:
    """The folder of a run by its path, or by the name or the stamp in ``runs``."""
    if Path(name).exists():
        return Path(name)
    found = (run.folder for run in runs.find() if name in (run.name, run.folder.name))
    return next(found, Path("runs") / name)


def _prune(words: list[str]) -> int:
    make_importable()
    if words and not words[0].startswith("-"):
        words = ["--model", *words]
    command = "evaluate" if "--prune" in words else "search"
    if not words or {"-h", "--help"} & {*words}:
        print(_PRUNE.format(mode="test" if "--prune" in words else "search"))
    return _as_program("experiments.real_model", [command, *(words or ["--help"])])


def _ledger(words: list[str]) -> int:
    formulas = experiment("ledger.formulas")
    folder = Path(str(formulas.__file__)).parent
    rows, wanted = [], [word.lower() for word in words]
    for path in sorted(folder.glob("*.toml")):
        for row in tomllib.loads(path.read_text(encoding="utf-8"))["statement"]:
            says = formulas.plain(row["says"])
            text = " ".join(map(str, (path.stem, says, *row.values()))).lower()
            if all(word in text for word in wanted):
                found = *row.get("functions", ()), *row.get("experiments", ())
                see = ", ".join(found)
                rows.append((path.stem, row["label"], row["status"], see, says))
    _table(("paper", "label", "status", "see", "says"), rows)
    return 0


def _table(head: Sequence[str], rows: Sequence[Any]) -> None:
    lines = [list(map(_cell, row)) for row in rows]
    if not lines:
        print("none")
        return
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    for line in (head, *lines):
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print("  ".join(cells).rstrip())


def _cell(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
