"""The command line of the experiment."""

import dataclasses

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments.task_diversity.config import PRESETS
from experiments.task_diversity.measure import compiled_scores, measure
from experiments.task_diversity.report import report
from experiments.task_diversity.theory import theory
from experiments.task_diversity.train import train


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    recipe = config.recipe
    run = Run.begin(
        launch,
        f"d = {recipe.dim}, {recipe.num_points} points, pools of "
        f"{', '.join(map(str, config.finite_sizes))} tasks and none, "
        f"{len(recipe.seeds)} seeds",
    )
    scored = compiled_scores(config)
    with run.phase("training"):
        fitted = train(config, run, scored)
    with run.phase("evaluation"):
        measured = measure(config, fitted.state.params, scored)
    with run.phase("theory"):
        lines = theory(config)
    timing = dataclasses.asdict(fitted.timing)
    return run.finish(report(config, measured, lines, fitted.records), timing=timing)
