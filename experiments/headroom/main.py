"""The command line of the experiment."""

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments.headroom.config import PRESETS
from experiments.headroom.measure import search_all
from experiments.headroom.report import report
from experiments.headroom.train import train


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config, recipe = launch.config, launch.config.recipe
    run = Run.begin(
        launch,
        f"{len(config.seeds)} models, {recipe.num_layers} layers of width "
        f"{recipe.width}, {recipe.steps:,} steps each",
    )
    with run.phase("training"):
        fitted = train(config, run)
    with run.phase("search"):
        found = search_all(config, run)
    return run.finish(report(config, fitted, found))
