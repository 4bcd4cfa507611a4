"""The command line of the experiment."""

import time

import jax

from experiments import _launch
from experiments._run import Run, console_of, default_preset
from experiments.small_lm import checkpoint, tasks
from experiments.small_lm.config import PRESETS
from experiments.small_lm.curve import curves
from experiments.small_lm.report import report
from experiments.small_lm.train import train

NAME = "small_lm"


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="A small language model that learns in context.",
    )
    config = launch.config
    run = Run.of(launch, NAME)
    console = console_of(run)
    console.print(
        f"{NAME}, preset {launch.preset}: {config.num_layers} layers of width "
        f"{config.width}, {config.steps:,} steps, on {jax.devices()[0].device_kind}\n"
        f"writing to {run.folder}"
    )
    begin = time.perf_counter()
    fitted = train(config, run, console)
    middle = time.perf_counter()
    params = fitted.state.params
    if run.writes:
        checkpoint.save(config, params, run.folder / "checkpoint")
        tasks.write(config.language, run.folder / "tasks")
    result = report(config, fitted, curves(config, params), run, console)
    end = time.perf_counter()
    result["seconds"] = {"training": middle - begin, "curves": end - middle}
    written = run.write_json("result.json", result)
    console.print(
        f"{end - begin:.0f} s, of which training {middle - begin:.0f} s; checkpoint, "
        f"tasks, results and figure in {run.folder}"
    )
    return written
