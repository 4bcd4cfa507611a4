"""The command line of the experiment."""

import jax
import numpy as np

from experiments._frame.command_line import Launch, parse
from experiments._frame.run import Run
from experiments.cot.config import PRESETS, Config
from experiments.cot.measure import measure
from experiments.cot.report import report
from experiments.cot.settings import comparisons, sweeps
from experiments.cot.theory import lines
from experiments.cot.train import masses, train


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    with jax.default_matmul_precision("highest"), jax.enable_x64(False):
        return _run_all(launch)


def _run_all(launch: Launch[Config]) -> dict:
    config = launch.config
    swept, compared = sweeps(config), comparisons(config)  # raises if infeasible
    run = Run.begin(
        launch,
        f"{len(config.seeds)} seeds, {config.iterations} iterations, {len(swept)} + "
        f"{len(compared)} settings, {config.draws} x {config.prompts} and "
        f"{config.compare_prompts} prompts each",
    )
    with run.phase("training, steps"):
        chains = jax.block_until_ready(
            train(config, config.chain_steps, config.chain_fraction)
        )
    with run.phase("attention along training"):
        along = jax.block_until_ready(masses(config, chains))
    with run.phase("training, two steps"):
        pairs = jax.block_until_ready(train(config, 2, config.compare_fraction))
    with run.phase("prompt lengths"):
        errors = measure(config, chains, swept, config.lengths, config.prompts, False)
    with run.phase("comparison"):
        lengths, prompts = config.compare_lengths, config.compare_prompts
        beside = measure(config, pairs, compared, lengths, prompts, True)
    found = report(
        config,
        along,
        np.asarray(chains.path.losses),
        list(zip(swept, errors, strict=True)),
        [
            (setting, errors, lines(setting, lengths))
            for setting, errors in zip(compared, beside, strict=True)
        ],
    )
    return run.finish(found)
