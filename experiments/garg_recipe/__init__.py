"""Which changes lower the error of Garg's training at equal prompts, and why.

Command
    python -m experiments.garg_recipe [--preset cpu|gpu|paper] [--resume RUN]
        [any field of Config, e.g. --changes posterior --recipe batch-half posterior]

What it does
    Trains GPT-2 on Garg's linear regression by a baseline, by the baseline with one
    change at a time at the same number of prompts (rule, rate, schedule, mean of the
    weights, batch, initial weights, curriculum, precision and that of the last phase,
    posterior means in place of labels), by the recipe that unites some of them, and by
    that recipe at half the steps. All have the same seeds, so each is compared with the
    baseline seed by seed, by the ratio of their excess risks over the posterior mean,
    means over prefixes. Measures the noise of both gradients on the same prompts.

Expect
    cpu     d = 3, 3 layers, width 48; 1,500 steps of 64 prompts with Muon; seeds 0 to
            2. Posterior means as targets reduce the excess risk most, then half the
            batch, a trapezoid and twice the rate. The recipe unites posterior means,
            the trapezoid and twice the rate, and reduces it further; at half the steps
            it cannot be told from the baseline. The gradients of labels have more
            variance than those of posterior means, more so at the end.
            docs/experiments/garg_recipe.md has the numbers. 14 to 27 minutes on two
            cores.
    gpu     d = 20, 12 layers, Muon in bfloat16, 24,000 steps of 256; not measured yet.
    paper   Garg's 500,001 steps of 64 beside the recipe; not measured yet.
"""

from experiments.garg_recipe.config import PRESETS as PRESETS
from experiments.garg_recipe.config import Config as Config
from experiments.garg_recipe.main import main as main

__all__ = ["PRESETS", "Config", "main"]
