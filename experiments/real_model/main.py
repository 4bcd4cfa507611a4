"""The command line of the experiment, and of the commands on a model of one's own."""

import dataclasses
import sys
from pathlib import Path

from experiments._frame.command_line import parse
from experiments._frame.options import Flags
from experiments._frame.run import Run
from experiments.real_model import measure
from experiments.real_model.commands import COMMANDS
from experiments.real_model.config import PRESETS
from experiments.real_model.published import model_name
from experiments.real_model.report import report
from experiments.real_model.subject import Subject


@dataclasses.dataclass(frozen=True)
class Switches(Flags):
    """Switches of this experiment.

    Attributes:
        task_folder: Folder with one of the task's name for each, in place of the hub.
    """

    task_folder: Path | None = None


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
    made = report(config, found, subject.about, model_name(subject.model.arch))
    return run.finish(made)
