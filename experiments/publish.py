"""Runs presets at one revision, compares their numbers with the stored, and stores.

``python -m experiments.publish garg_linear cot`` renews these two in
``experiments/results``, from which the documentation takes every number. A further
preset of an experiment that a page shows has a name of its own, such as
``garg_linear_sparse``. Without a name all are renewed: four hours on two cores, and
those whose preset is ``gpu``, ``d20`` or ``night`` need a GPU or a day. Finished runs
of the same revision are not repeated. A run whose numbers agree with the stored ones to
three digits replaces the figures alone, so that a change of a drawing needs no new
numbers. Otherwise the paths that differ are listed and the whole run is stored, as it
is where nothing is stored yet.
"""

import argparse
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.__main__ import experiments

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
PAGES = FOLDER.parent / "docs" / "experiments"
# Times differ between runs with equal numbers; sentences and tables repeat rounded
# numbers.
_ASIDE = ("seconds", "ms", "findings", "tables", "claims")
# Presets that are stored in addition to the default one, as EXPERIMENT_PRESET.
_FURTHER = {
    "task_diversity": ("gpu",),
    "which_algorithm": ("language",),
    "garg_linear": ("gpu", "d20", "sparse", "relu_network", "decision_tree"),
    "ltb_gpt2": ("noiseless", "d20"),
    "real_model": ("night",),
}


class Source(NamedTuple):
    """The run from which stored results come."""

    experiment: str
    preset: str


def sources() -> dict[str, Source]:
    """Lists the stored results by name: each default preset, and additional presets."""
    found = {}
    # The ledger has no preset: it stores its numbers and writes its page itself.
    for one in (one for one in experiments() if one.presets):
        found[one.name] = Source(one.name, next(iter(one.presets)))
        for preset in _FURTHER.get(one.name, ()):
            found[f"{one.name}_{preset}"] = Source(one.name, preset)
    return found


def finished(runs: Path, name: str, revision: str) -> Path | None:
    """Returns the newest finished run of a stored preset at a revision."""
    experiment, preset = sources()[name]
    for path in sorted((runs / experiment).glob("*/result.json"), reverse=True):
        config, result = _read(path.with_name("config.json")), _read(path)
        found = config["environment"]["revision"], config["preset"]
        if found == (revision, preset) and result["verdict"] != "not applicable":
            return path.parent
    return None


def store(run: Path, name: str) -> list[str]:
    """Stores figures that a page shows, and all else if any number differs.

    Returns the paths of the numbers that differ from the stored ones, with ``""`` for a
    name without stored results; raises if the run lacks a figure.
    """
    target, figures = RESULTS / name, shown_figures(name)
    missing = [figure for figure in figures if not (run / figure).exists()]
    if missing:
        drawn, wanted = sorted(path.name for path in run.glob("*.png")), missing[0]
        raise ValueError(
            f"{name}: expected {wanted}, which a page shows, got {', '.join(drawn)}"
        )
    config, result = _read(run / "config.json"), _rounded(_read(run / "result.json"))
    stored = _read(target / "result.json") if target.is_dir() else None
    changed = differences(stored, result)
    if changed:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        # Folders of runs and data are specific to one machine.
        command = re.sub(r" --(output|task-folder|garg-run) \S+", "", config["command"])
        parts = {"config": config | {"command": command}, "result": result}
        for file, part in parts.items():
            text = json.dumps(part, separators=(",", ":"))
            (target / f"{file}.json").write_text(text + "\n")
    for figure in figures:
        shutil.copyfile(run / figure, target / figure)
    return changed


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Lists the paths at which two results differ, apart from wall times.

    Numbers of another processor differ by rounding; three digits must be the same.
    """
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        if "seconds" in str(one.get("name", "")):  # a check of a time
            return []
        parts = [(k, one[k], other[k]) for k in one if not k.endswith(_ASIDE)]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        parts = [(str(i), *pair) for i, pair in enumerate(zip(one, other, strict=True))]
    elif isinstance(one, float) and isinstance(other, float):
        same = math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-9)
        return [] if same or one == other else [path]
    else:
        return [] if one == other else [path]
    return [d for key, a, b in parts for d in differences(a, b, f"{path}/{key}")]


def shown_figures(name: str) -> list[str]:
    """Returns file names of the stored figures that a page or the README shows."""
    pattern = rf"experiments/results/{name}/([\w.-]+\.png)"
    pages = [FOLDER.parent / "README.md", *PAGES.glob("*.md")]
    texts = [page.read_text() for page in pages]
    return sorted({found for text in texts for found in re.findall(pattern, text)})


def _rounded(value: Any) -> Any:
    """Rounds numbers to six digits, twice as many as agree between two machines."""
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def _clean_revision() -> str:
    """Returns the git revision; raises if a file differs from it."""
    line = ["git", "describe", "--always", "--dirty"]
    found = subprocess.check_output(line, cwd=FOLDER, text=True).strip()
    if found.endswith("-dirty"):
        raise ValueError(f"revision: expected no uncommitted changes, got {found}")
    return found


def _run(name: str, runs: Path) -> None:
    """Runs a preset; a failed check is stored, and any other failure is reported."""
    experiment, preset = sources()[name]
    line = ["-m", f"experiments.{experiment}", "--preset", preset]
    subprocess.run([sys.executable, *line, "--output", str(runs)], check=False)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the presets without a finished run, then compares and stores all results."""
    about, known = __doc__.partition("\n")[0], list(sources())
    parser = argparse.ArgumentParser("python -m experiments.publish", description=about)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all unless given")
    help = "folder of the runs"
    parser.add_argument("--output", type=Path, default=Path("runs"), help=help)
    options = parser.parse_args(argv)
    names = options.names or known
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"names: expected some of {known}, got {unknown}")
    revision = _clean_revision()
    # All runs come first, since a changed stored file would make the revision dirty
    # for the next run.
    for name in names:
        if finished(options.output, name, revision) is None:
            _run(name, options.output)
    found = {name: finished(options.output, name, revision) for name in names}
    for name, run in found.items():
        if run is not None:
            try:
                changed = store(run, name)
            except ValueError as error:
                parser.error(str(error))
            print(RESULTS / name, "differs:" if changed else "agrees", *changed)
    if missing := [name for name, run in found.items() if run is None]:
        parser.error(f"no finished run below {options.output} of {', '.join(missing)}")


if __name__ == "__main__":
    main()
