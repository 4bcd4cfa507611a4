"""The command line of the experiment."""

import time

import jax

from experiments import _launch
from experiments._run import Run, console_of, default_preset
from experiments._trained import train
from experiments.prune_icl.analysis import measure
from experiments.prune_icl.config import PRESETS
from experiments.prune_icl.report import report
from experiments.prune_icl.subjects import subject

NAME = "prune_icl"


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="SVD pruning of models that learned regression in context.",
    )
    config = launch.config
    run = Run.of(launch, NAME)
    console = console_of(run)
    console.print(
        f"{NAME}, preset {launch.preset}: GPT-2 of {config.gpt2.num_layers} layers "
        f"and a linear stack of {config.linear.num_layers}, "
        f"{len(config.gpt2.seeds)} seeds, on {jax.devices()[0].device_kind}\n"
        f"writing to {run.folder}"
    )
    start = time.perf_counter()
    trained, records = [], []
    for recipe in (config.gpt2, config.linear):
        trained.append(train(recipe, run, console, earlier=records))
        records += trained[-1].records
    middle = time.perf_counter()
    measured = [measure(subject(out, config), config) for out in trained]
    swept = time.perf_counter()
    result = report(trained, measured, config, run, console)
    seconds = {"training": middle - start, "sweeps": swept - middle}
    result["seconds"] = seconds
    written = run.write_json("result.json", result)
    console.print(
        f"{time.perf_counter() - start:.0f} s, of which training "
        f"{middle - start:.0f} s and sweeps {swept - middle:.0f} s; "
        f"results and figures in {run.folder}"
    )
    return written
