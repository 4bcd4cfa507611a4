"""The command line of the experiment."""

import dataclasses

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments.pattern_layers.config import PRESETS
from experiments.pattern_layers.measure import measure
from experiments.pattern_layers.report import report
from experiments.pattern_layers.train import train_layers


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    layers = config.layers
    run = Run.begin(
        launch,
        f"{len(layers.seeds)} models of {layers.num_layers} layers and two sets of "
        f"tasks, {layers.steps} steps",
    )
    measured = {}
    for shifts in (layers.shifts, config.ring):
        name = f"{layers.num_relevant * len(shifts)} tasks"
        with run.phase(f"{name}, training"):
            trained = train_layers(dataclasses.replace(layers, shifts=shifts))
        with run.phase(f"{name}, measuring"):
            measured[name] = measure(config, trained)
    return run.finish(report(config, measured))
