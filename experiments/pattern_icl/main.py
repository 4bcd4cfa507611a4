"""The command line of the experiment."""

import time

import jax

from experiments import _launch
from experiments._patterns import train_ensemble
from experiments._patterns.gpt2 import train_gpt
from experiments._run import Run, console_of, default_preset
from experiments.pattern_icl.baselines import compare
from experiments.pattern_icl.config import PRESETS, Config
from experiments.pattern_icl.coverage import coverage
from experiments.pattern_icl.gpt2 import gpt_errors
from experiments.pattern_icl.lengths import error_by_length
from experiments.pattern_icl.mechanism import mechanism
from experiments.pattern_icl.report import report
from experiments.pattern_icl.results import Results
from experiments.pattern_icl.speed import speed
from experiments.pattern_icl.sums import sweep

NAME = "pattern_icl"


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="In-context classification of patterns by nonlinear transformers.",
    )
    config = launch.config
    run = Run.of(launch, NAME)
    console = console_of(run)
    console.print(
        f"{NAME}, preset {launch.preset}: M1 = {config.figures.num_relevant}, "
        f"{config.figures.num_neurons} neurons, seeds {config.figures.seeds}, GPT-2 of "
        f"{config.gpt.num_layers} layers, on {jax.devices()[0].device_kind}\n"
        f"writing to {run.folder}"
    )
    start = time.perf_counter()
    found = measure(config, run, console)
    result = report(config, found, run, console)
    result["seconds"] = time.perf_counter() - start
    written = run.write_json("result.json", result)
    console.print(f"{result['seconds']:.0f} s; results and figures in {run.folder}")
    return written


def measure(config: Config, run: Run, console) -> Results:
    """Trains and measures everything."""
    figures = train_ensemble(config.figures)
    shifted = train_ensemble(config.shifted)
    gpt = train_gpt(config.gpt, config.gpt_seeds, figures, run, console)
    inside, outside = error_by_length(config, figures)
    return Results(
        figures,
        mechanism(config, figures),
        {
            f"β = {trained.ensemble.scale:g}": sweep(config, trained)
            for trained in (shifted, figures)
        },
        inside,
        outside,
        coverage(config, shifted),
        speed(config),
        gpt,
        gpt_errors(config, gpt),
        compare(config, figures, gpt),
    )
