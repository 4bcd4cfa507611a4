"""The command line of the experiment."""

import time

import jax

from experiments import _launch
from experiments._run import Run, console_of, default_preset
from experiments.ltb_gap.config import PRESETS
from experiments.ltb_gap.report import report
from experiments.ltb_gap.settings import trained_settings
from experiments.ltb_gap.theory import hills, phases, theory
from experiments.ltb_gap.train import train

NAME = "ltb_gap"
HILLS = (0.02, 0.1, 0.3, 1.0)


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="The best LSA, LTB and Bayes, and what is trained.",
    )
    config = launch.config
    run = Run.of(launch, NAME)
    console = console_of(run)
    settings = trained_settings(config)
    console.print(
        f"{NAME}, preset {launch.preset}: {len(settings)} settings x "
        f"{len(config.seeds)} seeds, on {jax.devices()[0].device_kind}\n"
        f"writing to {run.folder}"
    )
    start = time.perf_counter()
    trained = train(config, run, console)
    middle = time.perf_counter()
    with jax.enable_x64(True):
        exact = theory(config)
        grid = phases(config)
        arcs = hills(config, HILLS)
    result = report(config, exact, trained, grid, arcs, run, console)
    end = time.perf_counter()
    result["seconds"] = {"training": middle - start, "theory": end - middle}
    written = run.write_json("result.json", result)
    console.print(
        f"{end - start:.0f} s, of which training {middle - start:.0f} s; results and "
        f"figures in {run.folder}"
    )
    return written
