"""The command line of the experiment."""

import time

import jax

from experiments import _launch
from experiments._run import Run, console_of, default_preset
from experiments.gradient_flow.config import PRESETS, Config
from experiments.gradient_flow.descents import measure_descents
from experiments.gradient_flow.paths import measure_paths
from experiments.gradient_flow.report import report
from experiments.gradient_flow.starts import FATES, MODELS, measure_starts

NAME = "gradient_flow"


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="Gradient flow on exact risks: limits, rates, spurious minima.",
    )
    with jax.enable_x64(True):
        return _run_all(launch)


def _run_all(launch: _launch.Launch[Config]) -> dict:
    config = launch.config
    run = Run.of(launch, NAME)
    console = console_of(run)
    console.print(
        f"{NAME}, preset {launch.preset}: d = {config.dim}, M = {config.num_examples}, "
        f"{config.num_starts} random starts in {2 * len(config.dims)} settings, seed "
        f"{config.seed}, float64 on {jax.devices()[0].device_kind}\n"
        f"writing to {run.folder}"
    )
    start = time.perf_counter()
    run.reset_metrics([])

    def timed(name, measure, *args):
        before = time.perf_counter()
        found = measure(config, *args)
        record = {"name": name, "seconds": round(time.perf_counter() - before, 1)}
        if hasattr(found, "counts"):
            record["counts"] = found.counts
            arrived = found.counts[FATES[0]]
            console.print(f"{name}: {arrived} of {config.num_starts} arrive")
        run.log(record)
        return found

    paths = timed("paths", measure_paths)
    descents = timed("descents", measure_descents)
    starts = {
        (model, dim, M): timed(
            f"{model}, d = {dim}, M = {M}", measure_starts, model, dim, M
        )
        for model in MODELS
        for dim, M in config.settings
    }
    result = report(config, run, paths, descents, starts, console)
    written = run.write_json("result.json", result)
    console.print(
        f"{time.perf_counter() - start:.0f} s; results and figures in {run.folder}"
    )
    return written
