"""The command line of the experiment."""

import jax

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments._patterns import train_ensemble
from experiments._patterns.gpt2 import train_gpt
from experiments.pattern_pruning.bridge import compare
from experiments.pattern_pruning.config import PRESETS
from experiments.pattern_pruning.gpt2 import prune_gpt
from experiments.pattern_pruning.neurons import prune
from experiments.pattern_pruning.report import report


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    ensemble = config.ensemble
    run = Run.begin(
        launch,
        f"{len(ensemble.seeds)} models of {ensemble.num_neurons} neurons, "
        f"{ensemble.steps} steps, and {len(config.gpt_seeds)} GPT-2 of "
        f"{config.gpt.num_layers} layers, {config.gpt.steps} steps",
    )
    with run.phase("training"):
        trained = train_ensemble(ensemble)
        jax.block_until_ready(trained.path)
    with run.phase("pruning neurons"):
        neurons = prune(config, trained)
    with run.phase("comparing methods"):
        bridge = compare(config, trained)
    with run.phase("training GPT-2"):
        gpt = train_gpt(config.gpt, config.gpt_seeds, trained, run)
    with run.phase("pruning GPT-2"):
        gpt_neurons = prune_gpt(config, gpt)
    return run.finish(report(config, neurons, gpt, gpt_neurons, bridge))
