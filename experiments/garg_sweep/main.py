"""The command line of the experiment."""

import dataclasses
from typing import Any

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments.garg_sweep.config import PRESETS
from experiments.garg_sweep.measure import measure
from experiments.garg_sweep.report import report
from experiments.garg_sweep.train import train


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    recipe, count = config.recipe, len(config.widths) * len(config.ensemble())
    run = Run.begin(
        launch,
        f"d = {recipe.dim}, {recipe.num_layers} layers, {count} models, "
        f"{recipe.steps:,} steps of {recipe.batch_size} prompts, {config.precision}",
    )
    with run.phase("training"):
        fitted = train(config, run)
    with run.phase("evaluation"):
        trained: Any = fitted.state
        measured = measure(config, trained.parts)
    speed = {"model_steps_per_second": count * fitted.timing.steps_per_second}
    timing = dataclasses.asdict(fitted.timing) | speed
    return run.finish(report(config, measured), timing=timing)
