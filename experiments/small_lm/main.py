"""The command line of the experiment."""

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments.small_lm import checkpoint, tasks
from experiments.small_lm.config import PRESETS
from experiments.small_lm.curve import curves
from experiments.small_lm.report import report
from experiments.small_lm.train import train


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    run = Run.begin(
        launch,
        f"{config.num_layers} layers of width {config.width}, {config.steps:,} steps",
    )
    with run.phase("training"):
        fitted = train(config, run)
    params = checkpoint.rounded(fitted.state.params)
    if run.writes:
        checkpoint.save(config, params, run.folder / "checkpoint")
        tasks.write(config.language, run.folder / "tasks")
    with run.phase("curves"):
        found = curves(config, params)
    return run.finish(report(config, fitted, found))
