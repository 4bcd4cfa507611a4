"""The command line of the experiment."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax

from experiments import _launch
from experiments._run import Run, console_of
from experiments.prune_llm import study as studies
from experiments.prune_llm import subject as subjects
from experiments.prune_llm.config import PRESETS, Config
from experiments.prune_llm.measure import measure
from experiments.prune_llm.report import report
from experiments.prune_llm.ways import beside, compare_ways, rate_0

NAME, CHECKS = "prune_llm", "measured.json"


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        lambda: "tiny",
        argv,
        description="SVD pruning of a language model, and Algorithm 1.",
        add_flags=_add_flags,
        on_flags=_on_flags,
    )
    begin = time.perf_counter()
    if launch.flags.rebuild is not None:
        return _rebuild(launch.config, Run(launch.flags.rebuild))
    subject = subjects.load(launch.config)
    run = Run.of(launch, NAME)
    console = console_of(run)
    console.print(
        f"{NAME}, preset {launch.preset}: {subject.model.arch.family}, "
        f"{subject.model.num_layers} layers, tasks {', '.join(launch.config.tasks)}, "
        f"on {jax.devices()[0].device_kind}\nwriting to {run.folder}"
    )
    study = studies.begin(launch.config, subject, run)
    asked = measure(study, subject, run, console)
    searched = time.perf_counter() - begin
    measured = _checked(study, subject, run)
    result = report(study, measured, run, console)
    result["answered now"] = asked
    result = _write(run, result)
    console.print(
        f"{time.perf_counter() - begin:.0f} s, of which {searched:.0f} s for "
        f"{asked:,} new answers; results and figures in {run.folder}"
    )
    return result


def _rebuild(config: Config, run: Run) -> dict:
    """Tables, figures and results from the folder alone."""
    path = run.folder / CHECKS
    if not path.is_file():
        raise ValueError(f"rebuild: expected a complete run, got none of {path}")
    study = studies.rebuild(config, run)
    result = report(study, json.loads(path.read_text()), run, console_of(run))
    return _write(run, result)


def _checked(study: Any, subject: Any, run: Run) -> dict[str, Any]:
    """What needs the model and is measured once."""
    path = run.folder / CHECKS
    if not path.is_file():
        found = {
            "rate_0": rate_0(study, subject),
            "ways": compare_ways(study, subject),
            "theory": beside(study, subject, studies.systems_of(run)),
        }
        run.write_json(CHECKS, found)
    return json.loads(path.read_text())


def _write(run: Run, result: dict[str, Any]) -> dict[str, Any]:
    """Writes the results in JSON, and returns what was written."""
    return run.write_json("result.json", result)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    text = "make the tables and figures of a run again, without the model"
    parser.add_argument("--rebuild", type=Path, metavar="RUN", help=text)


def _on_flags(flags: argparse.Namespace) -> None:
    if flags.rebuild is not None:
        flags.resume = flags.rebuild
