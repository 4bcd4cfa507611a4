"""The command line of the experiment."""

import time

import jax
import numpy as np

from experiments import _launch
from experiments._run import Run, console_of, default_preset
from experiments.cot.config import PRESETS, Config
from experiments.cot.measure import measure
from experiments.cot.report import report
from experiments.cot.settings import comparisons, sweeps
from experiments.cot.theory import lines
from experiments.cot.train import masses, train

NAME = "cot"


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="Chain of thought against plain in-context learning.",
    )
    with jax.default_matmul_precision("highest"), jax.enable_x64(False):
        return _run_all(launch)


def _run_all(launch: _launch.Launch[Config]) -> dict:
    config = launch.config
    swept, compared = sweeps(config), comparisons(config)  # refuses what is infeasible
    run = Run.of(launch, NAME)
    console = console_of(run)
    console.print(
        f"{NAME}, preset {launch.preset}: {len(config.seeds)} seeds, "
        f"{config.iterations} iterations, {len(swept)} + {len(compared)} settings, "
        f"{config.draws} x {config.prompts} and {config.compare_prompts} prompts each, "
        f"on {jax.devices()[0].device_kind}\nwriting to {run.folder}"
    )
    start = time.perf_counter()
    run.reset_metrics([])

    def timed(name, function, *args):
        before = time.perf_counter()
        found = jax.block_until_ready(function(config, *args))
        seconds = time.perf_counter() - before
        run.log({"name": name, "seconds": round(seconds, 1)})
        console.print(f"{name}: {seconds:.1f} s")
        return found

    chains = timed("training, steps", train, config.chain_steps, config.chain_fraction)
    along = timed("attention along training", masses, chains)
    pairs = timed("training, two steps", train, 2, config.compare_fraction)
    errors = timed(
        "prompt lengths", measure, chains, swept, config.lengths, config.prompts, False
    )
    beside = timed(
        "comparison",
        measure,
        pairs,
        compared,
        config.compare_lengths,
        config.compare_prompts,
        True,
    )
    result = report(
        config,
        run,
        along,
        np.asarray(chains.path.losses),
        list(zip(swept, errors, strict=True)),
        [
            (setting, found, lines(setting, config.compare_lengths))
            for setting, found in zip(compared, beside, strict=True)
        ],
        console,
    )
    written = run.write_json("result.json", result)
    console.print(
        f"{time.perf_counter() - start:.0f} s; results and figures in {run.folder}"
    )
    return written
