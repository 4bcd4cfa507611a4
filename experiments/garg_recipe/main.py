"""The command line of the experiment."""

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments.garg_recipe.config import PRESETS
from experiments.garg_recipe.report import report
from experiments.garg_recipe.train import train


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    run = Run.begin(
        launch,
        f"d = {config.dim}, {config.num_layers} layers, {len(config.settings())} "
        f"settings, {config.baseline.prompts:,} prompts, seeds {config.seeds}",
    )
    with run.phase("training"):
        trained = train(config, run)
    return run.finish(report(config, trained))
