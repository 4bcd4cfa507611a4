"""The command line of the experiment."""

import jax

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments.li_figures import layers, one_layer, votes
from experiments.li_figures.config import PRESETS
from experiments.li_figures.levels import levels
from experiments.li_figures.published import LENGTHS_19
from experiments.li_figures.report import report


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    jax.config.update("jax_default_matmul_precision", "highest")
    run = Run.begin(
        launch,
        f"{sum(1 for _ in config.votes.rows())} tasks, "
        f"{len(config.one_layer.settings)} trainings of one layer on each of "
        f"{len(config.one_layer.task_sets)} sets of tasks",
    )
    with run.phase("votes"):
        found = votes.search(
            config.votes,
            LENGTHS_19,
            lambda rows: run.track(rows, "votes", unit="tasks"),
        )
        fits = levels(config, found)
    with run.phase("one layer"):
        sets = run.track(config.one_layer.task_sets, "one layer", unit="sets of tasks")
        single = [one_layer.search(config.one_layer, shifts) for shifts in sets]
    with run.phase("three layers"):
        deep = layers.search(
            config.three_layers,
            lambda cases: run.track(cases, "three layers", unit="programs"),
        )
    return run.finish(report(config, fits, single, deep))
