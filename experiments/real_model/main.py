"""The paper's question on a language model that people use: does SVD pruning help?"""

import dataclasses
import json
import sys
from pathlib import Path

from experiments import frame
from experiments.real_model import measure
from experiments.real_model.commands import COMMANDS
from experiments.real_model.config import PRESETS
from experiments.real_model.published import model_name
from experiments.real_model.report import report
from icltheory.runs import plain


@dataclasses.dataclass(frozen=True)
class Switches(frame.Flags):
    """Switches of this experiment."""

    # folder with one of the task's name for each, in place of the hub
    task_folder: Path | None = None


@frame.experiment(PRESETS, Switches())
def run_parts(config, run, flags):
    """Measures the parts of the run that are not stored yet, and reports."""
    subject = measure.Subject(config, run, flags.task_folder)
    found = {}
    for part in measure.PARTS:
        path = run.folder / f"{part.__name__}.json"
        if not path.is_file():
            with run.phase(part.__name__):
                run.write_json(path.name, plain(part(subject, found)))
        found[part.__name__] = json.loads(path.read_text())
    return report(config, found, subject.about, model_name(subject.model.arch))


def main(argv: list[str] | None = None) -> dict | None:
    """Runs the experiment, or the command whose name is in front of the options."""
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
    return run_parts(argv)
