"""Runs the default presets at one revision and stores their numbers and figures.

``python -m experiments.publish`` runs every experiment, about four hours on
two cores, and replaces ``experiments/results``, from which the documentation takes
every number. A further preset of an experiment that a page shows has a name of its own,
such as ``garg_linear_sparse``. ``python -m experiments.publish garg_linear cot``
renews only those two. Runs of the same revision that are finished are not repeated.
With ``--figures`` the pictures of a run replace the stored ones, and its numbers must
be those that are stored: so a change of a drawing needs no new numbers.
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
# The ledger stores its numbers and writes its page itself.
_NO_PRESETS = ("ledger",)
# Times differ between runs with equal numbers; sentences and tables repeat rounded
# numbers.
_ASIDE = ("seconds", "ms", "findings", "tables", "claims")
# Presets that are stored in addition to the default one, as EXPERIMENT_PRESET.
_FURTHER = {
    "task_diversity": ("gpu",),
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
    for one in experiments():
        if one.name in _NO_PRESETS:
            continue
        found[one.name] = Source(one.name, next(iter(one.presets)))
        for preset in _FURTHER.get(one.name, ()):
            found[f"{one.name}_{preset}"] = Source(one.name, preset)
    return found


def published() -> list[str]:
    """Returns the names under which results are stored."""
    return list(sources())


def finished(runs: Path, name: str, revision: str | None = None) -> Path | None:
    """Returns the newest finished run of a stored preset.

    Args:
        runs: The folder that holds the runs of all experiments.
        name: The name under which it is stored.
        revision: The revision that it must be of; any clean one unless given.
    """
    experiment, preset = sources()[name]
    folders = sorted((runs / experiment).glob("*/result.json"), reverse=True)
    for folder in (path.parent for path in folders):
        config, result = (_read(folder / f"{it}.json") for it in ("config", "result"))
        found = config["environment"]["revision"] or "-dirty"
        fits = found == revision if revision else not found.endswith("-dirty")
        whole = result["verdict"] != "not applicable"
        if fits and whole and config["preset"] == preset:
            return folder
    return None


def collect(run: Path, name: str) -> Path:
    """Replaces the results stored under a name by those of a run.

    Args:
        run: The run's folder.
        name: The name.

    Returns:
        The folder with ``config.json``, ``result.json`` and those figures that a page
        shows.

    Raises:
        ValueError: If the run did not draw one of them.
    """
    aside, target = RESULTS / f".writing_{name}", RESULTS / name
    figures = _drawn(run, name)
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    for file in ("config.json", "result.json"):
        stored = _read(run / file)
        if "command" in stored:
            # Folders of runs and data are specific to one machine.
            stored["command"] = re.sub(
                r" --(output|task-folder) \S+", "", stored["command"]
            )
        stored = stored if file == "config.json" else _rounded(stored)
        text = json.dumps(stored, separators=(",", ":"))
        (aside / file).write_text(text + "\n")
    for figure in figures:
        shutil.copyfile(run / figure, aside / figure)
    shutil.rmtree(target, ignore_errors=True)
    aside.rename(target)
    return target


def collect_figures(run: Path, name: str) -> Path:
    """Replaces the stored figures by those of a run with the same numbers.

    Args:
        run: The run's folder.
        name: The experiment.

    Returns:
        The folder with the figures.

    Raises:
        ValueError: If a number of the run differs from the stored one, or the run did
            not draw a figure that a page shows.
    """
    target = RESULTS / name
    stored, found = (_read(folder / "result.json") for folder in (target, run))
    changed = differences(stored, _rounded(found))
    if changed:
        raise ValueError(
            f"{name}: expected the stored numbers, got different ones at {changed[0]}; "
            "leave out --figures to store numbers and figures together"
        )
    for figure in _drawn(run, name):
        shutil.copyfile(run / figure, target / figure)
    return target


def _drawn(run: Path, name: str) -> list[str]:
    """Returns the figures that a page shows; raises if the run lacks one."""
    figures = shown_figures(name)
    missing = [figure for figure in figures if not (run / figure).exists()]
    if missing:
        drawn = sorted(path.name for path in run.glob("*.png"))
        raise ValueError(
            f"{name}: expected {', '.join(missing)}, which a page shows, got {drawn}"
        )
    return figures


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
    """Returns the git revision; raises if there are uncommitted changes.

    Raises:
        ValueError: if a file differs from it, since the numbers would be nobody's.
    """
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    if found.endswith("-dirty"):
        raise ValueError(f"revision: expected no uncommitted changes, got {found}")
    return found


def _run(name: str, runs: Path) -> None:
    """Runs a preset; a failed check is stored, and any other failure is reported."""
    experiment, preset = sources()[name]
    line = [
        "-m",
        f"experiments.{experiment}",
        "--preset",
        preset,
        "--output",
        str(runs),
    ]
    subprocess.run([sys.executable, *line], check=False)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the presets without a finished run, then stores all results."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.publish", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="what to store; all unless given"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("runs"), help="folder of the runs"
    )
    parser.add_argument(
        "--collect",
        action="store_true",
        help="run nothing: store the newest finished runs below --output",
    )
    parser.add_argument(
        "--figures",
        action="store_true",
        help="store the figures alone, of runs with the stored numbers",
    )
    options = parser.parse_args(argv)
    store = collect_figures if options.figures else collect
    names = options.names or published()
    unknown = sorted(set(names) - set(published()))
    if unknown:
        parser.error(f"names: expected some of {published()}, got {unknown}")
    revision = None
    if not options.collect:
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
                print(store(run, name))
            except ValueError as error:
                parser.error(str(error))
    missing = [name for name, run in found.items() if run is None]
    if missing:
        parser.error(f"no finished run below {options.output} of {', '.join(missing)}")


if __name__ == "__main__":
    main()
