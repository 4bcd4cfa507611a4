"""Which changes let Garg's training reach an error in fewer steps, and why.

Command
    python -m experiments.garg_recipe [--preset cpu|gpu|paper] [--resume RUN]
        [any field of Config, e.g. --changes posterior --recipe batch-half posterior]

What it does
    Trains GPT-2 on Garg's linear regression by a baseline, by the baseline with one
    change at a time at the same number of prompts (rule, rate, schedule, mean of the
    weights, batch, initial weights, curriculum, precision and that of the last phase,
    posterior means in place of labels), by the recipe that unites some of them, and by
    that recipe at half the steps. All have the same seeds, so each is compared with the
    baseline seed by seed: how many times its excess over the posterior mean, mean over
    prefixes, is left. Measures the noise of both gradients on the same prompts.

Expect (ratio, two standard errors; seeds 0 to 2)
    cpu     d = 3, 3 layers, width 48; 1,500 steps of 64 prompts with Muon. Posterior
            means 0.75 (0.67-0.84), a trapezoid 0.83 (0.80-0.87), twice the rate 0.84
            (0.78-0.90), half the batch 0.82 (0.76-0.88); the recipe of the first three
            0.69 (0.66-0.72), at half the steps 1.09 (0.94-1.26). Labels' gradients have
            1.5 times the variance of posterior means' at the start, 2.3 at the end.
            14 to 22 minutes on two cores.
    gpu     d = 20, 12 layers, Muon in bfloat16, 24,000 steps of 256; not measured yet.
    paper   Garg's 500,001 steps of 64 beside the recipe; not measured yet.
"""

from experiments.garg_recipe.config import PRESETS as PRESETS
from experiments.garg_recipe.config import Config as Config
from experiments.garg_recipe.main import main as main

__all__ = ["PRESETS", "Config", "main"]
