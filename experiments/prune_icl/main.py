"""The command line of the experiment."""

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments._trained import train
from experiments.prune_icl.analysis import measure
from experiments.prune_icl.config import PRESETS
from experiments.prune_icl.report import report
from experiments.prune_icl.subjects import subject


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    run = Run.begin(
        launch,
        f"GPT-2 of {config.gpt2.num_layers} layers and a linear stack of "
        f"{config.linear.num_layers}, {len(config.gpt2.seeds)} seeds",
    )
    trained, records = [], []
    with run.phase("training"):
        for recipe in (config.gpt2, config.linear):
            trained.append(train(recipe, run, earlier=records))
            records += trained[-1].records
    with run.phase("sweeps"), run.progress("rates") as inner:
        measured = [
            measure(subject(out, config), config, inner.follow) for out in trained
        ]
    return run.finish(report(trained, measured, config))
