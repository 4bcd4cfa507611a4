"""The command line of the experiment."""

import dataclasses
import time

import jax

from experiments import _launch
from experiments._run import Run, console_of, default_preset
from experiments.task_diversity.config import PRESETS
from experiments.task_diversity.measure import measure
from experiments.task_diversity.report import report
from experiments.task_diversity.theory import theory
from experiments.task_diversity.train import train

NAME = "task_diversity"


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="Transformers that learn from finite pools of tasks.",
    )
    config = launch.config
    config.recipe.transformation()  # complains before anything is written
    run = Run.of(launch, NAME)
    console = console_of(run)
    recipe = config.recipe
    console.print(
        f"{NAME}, preset {launch.preset}: d = {recipe.dim}, {recipe.num_points} "
        f"points, pools of {', '.join(map(str, config.finite_sizes))} tasks and none, "
        f"{len(recipe.seeds)} seeds, on {jax.devices()[0].device_kind}\n"
        f"writing to {run.folder}"
    )
    start = time.perf_counter()
    fitted = train(config, run, console)
    result = report(
        config, run, measure(config, fitted.state.params), theory(config), console
    )
    result["timing"] = dataclasses.asdict(fitted.timing)
    written = run.write_json("result.json", result)
    console.print(
        f"{time.perf_counter() - start:.0f} s; results, figures and checkpoints in "
        f"{run.folder}"
    )
    return written
