"""The command line of the experiment."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from experiments._frame.command_line import parse
from experiments._frame.options import Flags
from experiments._frame.run import Run
from experiments.prune_llm import study as studies
from experiments.prune_llm import subject as subjects
from experiments.prune_llm.commands import COMMANDS
from experiments.prune_llm.config import PRESETS, Config
from experiments.prune_llm.measure import measure
from experiments.prune_llm.report import report
from experiments.prune_llm.ways import beside, compare_ways, rate_0

CHECKS = "measured.json"


@dataclasses.dataclass(frozen=True)
class Switches(Flags):
    """Switches of this experiment.

    Attributes:
        rebuild: Run folder whose tables and figures are made again, without the model.
    """

    rebuild: Path | None = None

    def stored_run(self) -> Path | None:
        """Folder of the run that is rebuilt."""
        return self.rebuild


def main(argv: list[str] | None = None) -> dict | None:
    """Runs the experiment and returns what it wrote to ``result.json``.

    With the name of a command in front of the options it runs that instead.
    """
    words = sys.argv[1:] if argv is None else argv
    if words and not words[0].startswith("-"):
        if words[0] not in COMMANDS:
            raise ValueError(
                f"command: expected one of {', '.join(COMMANDS)}, or options of the "
                f"experiment, got {words[0]}"
            )
        return COMMANDS[words[0]](words[1:])
    if {"-h", "--help"} & set(words):
        print(
            f"Commands on your own model: {', '.join(COMMANDS)}, each with a help page "
            "of its own.\n"
        )
    launch = parse(PRESETS, argv, flags=Switches())
    if launch.flags.rebuild is not None:
        return _rebuild(launch.config, Run(launch.flags.rebuild, launch))
    subject = subjects.load(launch.config)
    run = Run.begin(
        launch,
        f"{subject.model.arch.family}, {subject.model.num_layers} layers, tasks "
        f"{', '.join(launch.config.task_names)}",
    )
    study = studies.begin(launch.config, subject, run)
    with run.phase("search"):
        asked = measure(study, subject, run)
    with run.phase("checks"):
        measured = _checked(study, subject, run)
    return run.finish(report(study, measured), **{"answered now": asked})


def _rebuild(config: Config, run: Run) -> dict:
    """Rebuilds tables, figures and results from the run folder, without the model."""
    path = run.folder / CHECKS
    if not path.is_file():
        raise ValueError(f"rebuild: expected a complete run, got one without {path}")
    study = studies.rebuild(config, run)
    return run.finish(report(study, json.loads(path.read_text())))


def _checked(study: Any, subject: Any, run: Run) -> dict[str, Any]:
    """Returns the checks that need the model, which are measured once."""
    path = run.folder / CHECKS
    if not path.is_file():
        found = {
            "rate_0": rate_0(study, subject),
            "ways": compare_ways(study, subject),
            "theory": beside(study, subject, studies.systems_of(run)),
        }
        run.write_json(CHECKS, found)
    return json.loads(path.read_text())
