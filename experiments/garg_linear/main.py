"""The command line of the experiment."""

import dataclasses

from experiments._frame.command_line import parse
from experiments._frame.processes import Processes
from experiments._frame.run import Run
from experiments.garg_linear.config import PRESETS, set_up
from experiments.garg_linear.report import report, report_shifts
from experiments.garg_linear.train import train


@dataclasses.dataclass(frozen=True)
class Switches(Processes):
    """Switches of this experiment.

    Attributes:
        eval_shifts: Evaluate the trained model on Garg's fifteen distribution shifts,
            which are made for linear functions.
    """

    eval_shifts: bool = False


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv, flags=Switches())
    config = launch.config
    setup = set_up(config, launch.flags.devices)
    if launch.flags.eval_shifts and not setup.family.shifts:
        raise ValueError(f"eval_shifts: expected the task linear, got {config.task}")
    run = Run.begin(
        launch,
        f"{config.task}, d = {config.dim}, {config.num_layers} layers, "
        f"{config.steps:,} steps of {config.batch_size} prompts, {config.precision}",
    )
    with run.phase("training"):
        params, records, timing = train(setup, run)
    with run.phase("evaluation"):
        found = report(setup, params, records)
    if launch.flags.eval_shifts:
        with run.phase("distribution shifts"):
            run.write_json("shifts.json", report_shifts(setup, run, params))
    speed = {"steps_per_second": timing.steps_per_second}
    return run.finish(found, timing=dataclasses.asdict(timing) | speed)
