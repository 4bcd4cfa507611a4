"""The command line of the experiment."""

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments._trained import train
from experiments.position import regression
from experiments.position.config import PRESETS
from experiments.position.report import report
from experiments.position.shape import shapes


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    run = Run.begin(
        launch,
        f"{config.prompts:,} prompts of {config.gpt2.num_points - 1} examples",
    )
    with run.phase("training"):
        trained = train(config.gpt2, run)
    with run.phase("regression"):
        errors = regression.stack_errors(config)
        exact = {
            case: regression.exact_errors(config, int(case[0].split()[0]), case[1])
            for case in errors
        }
        weights = {
            layers: regression.mean_weights(config, layers) for layers in config.layers
        }
        errors |= regression.trained_errors(config, trained)
    found = shapes(errors, config.level)
    return run.finish(report(config, found, exact, weights))
