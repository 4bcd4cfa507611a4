"""The command line of the experiment."""

import jax

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments.ltb_gap.config import PRESETS
from experiments.ltb_gap.report import report
from experiments.ltb_gap.settings import trained_settings
from experiments.ltb_gap.theory import hills, phases, theory
from experiments.ltb_gap.train import train

HILLS = (0.02, 0.1, 0.3, 1.0)


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    settings = trained_settings(config)
    run = Run.begin(launch, f"{len(settings)} settings x {len(config.seeds)} seeds")
    with run.phase("training"):
        trained = train(config, run)
    with run.phase("theory"), jax.enable_x64(True):
        exact = theory(config)
        grid = phases(config)
        arcs = hills(config, HILLS)
    return run.finish(report(config, exact, trained, grid, arcs))
