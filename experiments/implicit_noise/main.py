"""The command line of the experiment."""

import dataclasses

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments._trained import train
from experiments.implicit_noise.config import PRESETS
from experiments.implicit_noise.measure import measure_gpt2, measure_stack
from experiments.implicit_noise.report import report


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    run = Run.begin(
        launch,
        f"d = {config.gpt2.dim}, GPT-2 of {config.gpt2.num_layers} layers, linear "
        f"stack of {config.stack.num_layers}",
    )
    with run.phase("training GPT-2"):
        gpt2 = train(config.recipe("gpt2"), run)
    with run.phase("training the stack"):
        stack = train(config.recipe("stack"), run, earlier=gpt2.records)
    with run.phase("noise"):
        splits, noises = measure_gpt2(config, gpt2), measure_stack(config, stack)
    timing = {one.name: dataclasses.asdict(one.timing) for one in (gpt2, stack)}
    return run.finish(report(config, splits, noises), timing=timing)
