"""The command line of the experiment."""

import dataclasses
import time

import jax

from experiments import _launch
from experiments._run import Run, console_of, default_preset
from experiments._trained import train
from experiments.implicit_noise.config import PRESETS
from experiments.implicit_noise.measure import measure_gpt2, measure_stack
from experiments.implicit_noise.report import report

NAME = "implicit_noise"


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="The noise of the implicit gradient: shots and training.",
    )
    config = launch.config
    for name in ("gpt2", "stack"):
        config.recipe(name).transformation()  # complains before anything is written
    run = Run.of(launch, NAME)
    console = console_of(run)
    console.print(
        f"{NAME}, preset {launch.preset}: d = {config.gpt2.dim}, GPT-2 of "
        f"{config.gpt2.num_layers} layers, linear stack of {config.stack.num_layers}, "
        f"on {jax.devices()[0].device_kind}\nwriting to {run.folder}"
    )
    start = time.perf_counter()
    gpt2 = train(config.recipe("gpt2"), run, console)
    stack = train(config.recipe("stack"), run, console, earlier=gpt2.records)
    result = report(
        config, run, measure_gpt2(config, gpt2), measure_stack(config, stack), console
    )
    result["timing"] = {
        trained.name: dataclasses.asdict(trained.timing) for trained in (gpt2, stack)
    }
    written = run.write_json("result.json", result)
    console.print(
        f"{time.perf_counter() - start:.0f} s; results, figures and checkpoints in "
        f"{run.folder}"
    )
    return written
