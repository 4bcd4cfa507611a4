"""The command line of the experiment."""

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments.depth.config import PRESETS
from experiments.depth.measure import measure
from experiments.depth.report import report


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    run = Run.begin(
        launch,
        f"up to {config.max_layers} layers of linear attention, {config.starts} "
        f"starts, at (d, N) = {', '.join(map(str, config.settings))}",
    )
    with run.phase("training"):
        settings = measure(config, run)
    with run.phase("exact lines"):
        found = report(config, settings)
    return run.finish(found)
