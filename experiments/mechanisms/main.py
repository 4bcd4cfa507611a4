"""The command line of the experiment."""

import time

import jax

from experiments import _launch
from experiments._run import Run, console_of, default_preset
from experiments._trained import train
from experiments.mechanisms import circuit, features, kernels, language, regression
from experiments.mechanisms.config import PRESETS
from experiments.mechanisms.found import Found
from experiments.mechanisms.report import report

NAME = "mechanisms"


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="Phases of attention on features; kernels; induction heads.",
    )
    config = launch.config
    model = language.load(config.heads)
    run = Run.of(launch, NAME)
    console = console_of(run)
    console.print(
        f"{NAME}, preset {launch.preset}: K = {config.features.balanced}, "
        f"{config.kernels.draws:,} draws of {config.kernels.num_examples} points, "
        f"heads of {config.heads.checkpoint}, on {jax.devices()[0].device_kind}\n"
        f"writing to {run.folder}"
    )
    seconds = {}
    start = time.perf_counter()

    def timed(name, result):
        nonlocal start
        now = time.perf_counter()
        seconds[name], start = now - start, now
        return result

    trained = timed("training", train(config.gpt2, run, console))
    with jax.enable_x64(True):
        balanced = {
            K: features.balanced(config.features, K) for K in config.features.balanced
        }
        finite = {
            N: features.finite(config.features, N) for N in config.features.finite
        }
        imbalanced = timed("features", features.imbalanced(config.features))
        forms = kernels.forms(config.kernels, config.seed)
        errors = {
            data: kernels.errors(config.kernels, config.seed, data)
            for data in config.kernels.data
        }
        timed("kernels", None)
        built = timed("circuit", circuit.circuit(config.heads, config.seed))
    read = timed("language", language.measure(config.heads, config.seed, model))
    sequences = config.heads.sequences
    lookup = regression.measure(config.gpt2, trained, sequences, config.seed)
    timed("regression", None)
    theory = balanced, finite, imbalanced, forms, errors
    found = Found(*theory, built, read, lookup)
    result = report(config, found, run, console)
    timed("report", None)
    result["seconds"] = seconds
    written = run.write_json("result.json", result)
    console.print(
        f"{sum(seconds.values()):.0f} s ("
        + ", ".join(f"{name} {value:.0f}" for name, value in seconds.items())
        + f"); results and figures in {run.folder}"
    )
    return written
