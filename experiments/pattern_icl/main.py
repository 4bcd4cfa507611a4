"""The command line of the experiment."""

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments._patterns import train_ensemble
from experiments._patterns.gpt2 import train_gpt
from experiments.pattern_icl.baselines import compare
from experiments.pattern_icl.config import PRESETS, Config
from experiments.pattern_icl.coverage import coverage
from experiments.pattern_icl.gpt2 import gpt_errors
from experiments.pattern_icl.lengths import error_by_length
from experiments.pattern_icl.mechanism import mechanism
from experiments.pattern_icl.report import report
from experiments.pattern_icl.results import PatternResults
from experiments.pattern_icl.speed import speed
from experiments.pattern_icl.sums import sweep


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    figures = config.figures
    run = Run.begin(
        launch,
        f"M1 = {figures.num_relevant}, {figures.num_neurons} neurons, seeds "
        f"{figures.seeds}, GPT-2 of {config.gpt.num_layers} layers",
    )
    with run.phase("training and measuring"):
        found = measure(config, run)
    return run.finish(report(config, found))


def measure(config: Config, run: Run) -> PatternResults:
    """Trains and measures everything."""
    figures = train_ensemble(config.figures)
    shifted = train_ensemble(config.shifted)
    gpt = train_gpt(config.gpt, config.gpt_seeds, figures, run)
    inside, outside = error_by_length(config, figures)
    return PatternResults(
        figures,
        mechanism(config, figures),
        {
            f"β = {trained.ensemble.scale:g}": sweep(config, trained)
            for trained in (shifted, figures)
        },
        inside,
        outside,
        coverage(config, shifted),
        speed(config),
        gpt,
        gpt_errors(config, gpt),
        compare(config, figures, gpt),
    )
