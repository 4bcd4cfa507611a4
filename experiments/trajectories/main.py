"""The command line of the experiment."""

import time

import jax

from experiments import _launch
from experiments._run import Run, console_of, default_preset
from experiments._trained import train
from experiments.trajectories.config import PRESETS
from experiments.trajectories.measure import KINDS, Judge, clipped, norms
from experiments.trajectories.report import report
from experiments.trajectories.stacks import prompts, stacks

NAME = "trajectories"


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="Implicit gradient trajectories before and after pruning.",
    )
    config = launch.config
    run = Run.of(launch, NAME)
    console = console_of(run)
    L = config.linear.num_layers
    console.print(
        f"{NAME}, preset {launch.preset}: stacks of {L} layers, d = "
        f"{config.linear.dim}, {config.prompts:,} prompts of "
        f"{config.linear.num_points - 1} demonstrations, on "
        f"{jax.devices()[0].device_kind}\nwriting to {run.folder}"
    )
    start = time.perf_counter()
    trained = train(config.linear, run, console)
    middle = time.perf_counter()
    # Norms that cancel along the path need the digits; training does not.
    with jax.enable_x64(True):
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
    result = report(config, cases, plain, effects, run, console)
    result["seconds"] = {"training": middle - start}
    written = run.write_json("result.json", result)
    console.print(
        f"{time.perf_counter() - start:.0f} s, of which training "
        f"{middle - start:.0f} s; results and figures in {run.folder}"
    )
    return written
