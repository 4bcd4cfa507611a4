"""The command line of the experiment."""

import dataclasses
import time

import jax

from experiments import _launch
from experiments._run import Run, console_of, default_preset
from experiments.pattern_layers.config import PRESETS
from experiments.pattern_layers.measure import measure
from experiments.pattern_layers.report import report
from experiments.pattern_layers.train import train_layers

NAME = "pattern_layers"


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="Transformers of several layers on pattern tasks.",
    )
    config = launch.config
    run = Run.of(launch, NAME)
    console = console_of(run)
    run.reset_metrics([])
    layers = config.layers
    console.print(
        f"{NAME}, preset {launch.preset}: {len(layers.seeds)} models of "
        f"{layers.num_layers} layers and two sets of tasks, {layers.steps} steps, on "
        f"{jax.devices()[0].device_kind}\nwriting to {run.folder}"
    )
    start, measured = time.perf_counter(), {}
    for shifts in (layers.shifts, config.ring):
        name = f"{layers.num_relevant * len(shifts)} tasks"
        trained = train_layers(dataclasses.replace(layers, shifts=shifts))
        middle = time.perf_counter() - start
        measured[name] = measure(config, trained)
        seconds = time.perf_counter() - start
        run.log({"tasks": name, "trained": middle, "measured": seconds})
        console.print(f"{name}: trained {middle:.0f} s, measured {seconds:.0f} s")
    result = report(config, measured, run, console)
    result["seconds"] = time.perf_counter() - start
    written = run.write_json("result.json", result)
    console.print(f"{result['seconds']:.0f} s; results and figures in {run.folder}")
    return written
