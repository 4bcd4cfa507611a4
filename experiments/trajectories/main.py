"""The command line of the experiment."""

import jax

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments._trained import train
from experiments.trajectories.config import PRESETS
from experiments.trajectories.measure import KINDS, Judge, clipped, norms
from experiments.trajectories.report import report
from experiments.trajectories.stacks import prompts, stacks


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    L = config.linear.num_layers
    run = Run.begin(
        launch,
        f"stacks of {L} layers, d = {config.linear.dim}, {config.prompts:,} prompts of "
        f"{config.linear.num_points - 1} demonstrations",
    )
    with run.phase("training"):
        trained = train(config.linear, run)
    # Norms that cancel along the path need float64; training does not.
    with run.phase("trajectories"), jax.enable_x64(True):
        compared, asked = stacks(config, trained), prompts(config)
        cases = {
            (name, kind, rank): norms(config, stack, asked, kind, rank)
            for name, stack in compared.items()
            for kind in KINDS
            for rank in config.ranks
        }
        judge = Judge(config, asked)
        plain = {name: judge(stack) for name, stack in compared.items()}
        effects = {
            (*case, k): judge(clipped(compared[case[0]], k, *case[1:]))
            for case in cases
            for k in range(L)
        }
    return run.finish(report(config, cases, plain, effects))
