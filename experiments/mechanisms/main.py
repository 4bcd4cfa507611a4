"""The command line of the experiment."""

import jax

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments._trained import train
from experiments.mechanisms import circuit, features, kernels, language, regression
from experiments.mechanisms.config import PRESETS
from experiments.mechanisms.found import MechanismFindings
from experiments.mechanisms.report import report
from experiments.shared.language import load


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    heads, seed = config.heads, config.seed
    model = load(heads.checkpoint, "heads.checkpoint")
    run = Run.begin(
        launch,
        f"K = {config.features.balanced}, {config.kernels.draws:,} draws of "
        f"{config.kernels.num_examples} points, heads of {heads.checkpoint}",
    )
    with run.phase("training"):
        trained = train(config.gpt2, run)
    with jax.enable_x64(True):
        with run.phase("features"):
            balanced = {
                K: features.balanced(config.features, K)
                for K in config.features.balanced
            }
            finite = {
                N: features.finite(config.features, N) for N in config.features.finite
            }
            imbalanced = features.imbalanced(config.features)
        with run.phase("kernels"):
            forms = kernels.forms(config.kernels, seed)
            errors = {
                data: kernels.errors(config.kernels, seed, data)
                for data in config.kernels.data
            }
        with run.phase("circuit"):
            built = circuit.circuit(heads, seed)
    with run.phase("language"):
        read = language.measure(heads, seed, model)
    with run.phase("regression"):
        lookup = regression.measure(config.gpt2, trained, heads.sequences, seed)
    found = MechanismFindings(
        balanced, finite, imbalanced, forms, errors, built, read, lookup
    )
    return run.finish(report(config, found))
