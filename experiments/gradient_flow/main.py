"""The command line of the experiment."""

import jax

from experiments._frame.command_line import Launch, parse
from experiments._frame.run import Run
from experiments.gradient_flow.config import PRESETS, Config
from experiments.gradient_flow.descents import measure_descents
from experiments.gradient_flow.paths import measure_paths
from experiments.gradient_flow.report import report
from experiments.gradient_flow.starts import FATES, MODELS, measure_starts


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    with jax.enable_x64(True):
        return _run_all(launch)


def _run_all(launch: Launch[Config]) -> dict:
    config = launch.config
    run = Run.begin(
        launch,
        f"d = {config.dim}, M = {config.num_examples}, {config.num_starts} random "
        f"starts in {2 * len(config.dims)} settings, seed {config.seed}, float64",
    )
    run.reset_metrics([])
    with run.phase("paths"):
        paths = measure_paths(config)
    with run.phase("descents"):
        descents = measure_descents(config)
    starts = {}
    for model in MODELS:
        for dim, M in config.settings:
            name = f"{model}, d = {dim}, M = {M}"
            with run.phase(name):
                found = measure_starts(config, model, dim, M)
            starts[model, dim, M] = found
            run.log({"name": name, "counts": found.counts})
            arrived = found.counts[FATES[0]]
            run.console.print(f"{name}: {arrived} of {config.num_starts} arrive")
    return run.finish(report(config, paths, descents, starts))
