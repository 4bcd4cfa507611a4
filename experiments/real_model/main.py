"""The command line of the experiment."""

import dataclasses
from pathlib import Path

from experiments._frame.command_line import parse
from experiments._frame.options import Flags
from experiments._frame.run import Run
from experiments.real_model import measure
from experiments.real_model.config import PRESETS
from experiments.real_model.report import report
from experiments.real_model.subject import Subject


@dataclasses.dataclass(frozen=True)
class Switches(Flags):
    """Switches of this experiment.

    Attributes:
        task_folder: Folder with one of the task's name for each, in place of the hub.
    """

    task_folder: Path | None = None


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv, flags=Switches())
    config = launch.config
    run = Run.begin(launch, f"{len(config.tasks)} tasks")
    subject = Subject(config, run, launch.flags.task_folder)
    found = {"prompts": measure.part(run, "prompts", lambda: measure.prompts(subject))}
    cases = [tuple(found["prompts"][name]["chosen"]) for name in config.tasks]
    for name, measured in (
        ("curves", lambda: measure.curves(subject, cases)),
        ("conditions", lambda: measure.conditions(subject)),
        ("grid", lambda: measure.grid(subject, cases)),
        ("searches", lambda: measure.searches(subject, cases, found["conditions"])),
        ("together", lambda: measure.together(subject, cases, found["grid"])),
        ("updates", lambda: measure.updates(subject, cases)),
    ):
        found[name] = measure.part(run, name, measured)
    return run.finish(report(config, found, subject.about))
