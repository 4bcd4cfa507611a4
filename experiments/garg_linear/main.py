"""The command line of the experiment."""

import argparse
import dataclasses
import time

import jax

from experiments import _launch, _processes
from experiments._run import Run, console_of, default_preset
from experiments.garg_linear.config import PRESETS, set_up
from experiments.garg_linear.kernels import with_kernels
from experiments.garg_linear.report import report, report_shifts
from experiments.garg_linear.train import train

NAME = "garg_linear"


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--eval-shifts", action="store_true")
    _processes.add_flags(parser)


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="A transformer learns linear regression in context.",
        add_flags=_flags,
        on_flags=_processes.join,
    )
    config = launch.config
    setup = set_up(config, launch.flags.devices)
    run = Run.of(launch, NAME)
    console = console_of(run)
    console.print(
        f"{NAME}, preset {launch.preset}: d = {config.dim}, "
        f"{config.num_layers} layers, {config.steps:,} steps of {config.batch_size} "
        f"prompts, {config.precision} on {jax.device_count()} x "
        f"{jax.devices()[0].device_kind}\nwriting to {run.folder}"
    )
    setup = with_kernels(setup, run, console)
    start = time.perf_counter()
    params, records, timing = train(setup, run, console)
    result = report(setup, run, params, records, console)
    if launch.flags.eval_shifts:
        run.write_json("shifts.json", report_shifts(setup, run, params, console))
    speed = {"steps_per_second": timing.steps_per_second}
    result["timing"] = dataclasses.asdict(timing) | speed
    written = run.write_json("result.json", result)
    console.print(
        f"{time.perf_counter() - start:.0f} s; in training "
        f"{timing.train_seconds:.0f} s of steps and {timing.compile_seconds:.0f} s of "
        f"compiling; results, figures and checkpoints in {run.folder}"
    )
    return written
