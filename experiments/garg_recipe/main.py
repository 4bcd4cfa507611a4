"""The command line of the experiment."""

import time

import jax

from experiments import _launch
from experiments._run import Run, console_of, default_preset
from experiments.garg_recipe.config import PRESETS
from experiments.garg_recipe.report import report
from experiments.garg_recipe.train import train

NAME = "garg_recipe"


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="What a training on Garg's regression gains from which change.",
    )
    config = launch.config
    run = Run.of(launch, NAME)
    console = console_of(run)
    settings = config.settings()
    console.print(
        f"{NAME}, preset {launch.preset}: d = {config.dim}, {config.num_layers} "
        f"layers, {len(settings)} settings, {config.baseline.prompts:,} prompts, seeds "
        f"{config.seeds} on {jax.devices()[0].device_kind}\nwriting to {run.folder}"
    )
    start = time.perf_counter()
    result = report(config, run, train(config, run, console), console)
    written = run.write_json("result.json", result)
    console.print(
        f"{time.perf_counter() - start:.0f} s; results, figure and checkpoints in "
        f"{run.folder}"
    )
    return written
