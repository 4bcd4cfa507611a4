"""The command line of the experiment."""

import dataclasses
import time
from typing import Any

import jax

from experiments import _launch
from experiments._run import Run, console_of, default_preset
from experiments.garg_sweep.config import PRESETS
from experiments.garg_sweep.measure import measure
from experiments.garg_sweep.report import report
from experiments.garg_sweep.train import train

NAME = "garg_sweep"


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="Transformers of all widths, rates and noises in one program.",
    )
    config = launch.config
    config.recipe.transformation()  # complains before anything is written
    run = Run.of(launch, NAME)
    console = console_of(run)
    recipe, count = config.recipe, len(config.widths) * len(config.ensemble())
    console.print(
        f"{NAME}, preset {launch.preset}: d = {recipe.dim}, {recipe.num_layers} "
        f"layers, {count} models, {recipe.steps:,} steps of {recipe.batch_size} "
        f"prompts, {config.precision} on {jax.devices()[0].device_kind}\n"
        f"writing to {run.folder}"
    )
    start = time.perf_counter()
    fitted = train(config, run, console)
    trained: Any = fitted.state
    result = report(config, run, measure(config, trained.parts), console)
    speed = {"model_steps_per_second": count * fitted.timing.steps_per_second}
    result["timing"] = dataclasses.asdict(fitted.timing) | speed
    written = run.write_json("result.json", result)
    console.print(
        f"{time.perf_counter() - start:.0f} s; {speed['model_steps_per_second']:.0f} "
        f"model-steps/s; results, figure and checkpoints in {run.folder}"
    )
    return written
