"""The command line of the experiment."""

import time

import jax

from experiments import _launch
from experiments._patterns import train_ensemble
from experiments._patterns.gpt2 import train_gpt
from experiments._run import Run, console_of, default_preset
from experiments.pattern_pruning.bridge import compare
from experiments.pattern_pruning.config import PRESETS
from experiments.pattern_pruning.gpt2 import prune_gpt
from experiments.pattern_pruning.neurons import prune
from experiments.pattern_pruning.report import report

NAME = "pattern_pruning"


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="Magnitude pruning and clipping of models of pattern tasks.",
    )
    config = launch.config
    run = Run.of(launch, NAME)
    console = console_of(run)
    run.reset_metrics([])
    ensemble = config.ensemble
    console.print(
        f"{NAME}, preset {launch.preset}: {len(ensemble.seeds)} models of "
        f"{ensemble.num_neurons} neurons, {ensemble.steps} steps, and "
        f"{len(config.gpt_seeds)} GPT-2 of {config.gpt.num_layers} layers, "
        f"{config.gpt.steps} steps, on "
        f"{jax.devices()[0].device_kind}\nwriting to {run.folder}"
    )
    start, parts = time.perf_counter(), []

    def done(part):
        seconds = time.perf_counter() - start
        parts.append({"part": part, "seconds": seconds})
        run.log(parts[-1])
        console.print(f"{part}: {seconds:.0f} s")

    trained = train_ensemble(ensemble)
    jax.block_until_ready(trained.path)
    done("trained")
    neurons = prune(config, trained)
    done("neurons pruned")
    bridge = compare(config, trained)
    done("methods compared")
    gpt = train_gpt(config.gpt, config.gpt_seeds, trained, run, console, parts)
    done("GPT-2 trained")
    gpt_neurons = prune_gpt(config, gpt)
    done("GPT-2 pruned")
    result = report(config, neurons, gpt, gpt_neurons, bridge, run, console)
    result["seconds"] = time.perf_counter() - start
    written = run.write_json("result.json", result)
    console.print(f"{result['seconds']:.0f} s; results and figures in {run.folder}")
    return written
