"""From memorised tasks to ridge regression as the pool grows (Raventos et al. 2023).

Command
    python -m experiments.task_diversity [--preset cpu|gpu|paper] [--resume RUN]
        [any field of Config, e.g. --recipe.steps 3000 --pool-sizes 1 8 64 0]

What it does
    Trains GPT-2 on prompts y = <w, x> + noise whose w is one of M fixed tasks, for a
    growing M, several pools a size, and without a pool. Compares its answers with
    discrete MMSE (dMMSE, the posterior mean for the pool) and with ridge at penalty
    sigma^2 (the posterior mean for Gaussian tasks), on tasks of the pool and on new
    ones: squared errors against <w, x> and squared distances, divided by d, means over
    k = 0, ..., P - 1. Ridge's line is an average over inputs of an exact risk, dMMSE's
    one over 64 pools that no model has seen. Error minus Bayes error is the distance to
    the Bayes predictor (dMMSE on the pool, ridge on new tasks); the run tests that. The
    size from which the transformer is closer to ridge is read off for every seed.

Expect
    cpu     d = 3, P = 8, sigma^2 = 0.25, 18 transformers of 2 layers, one token a pair,
            four to seven minutes on two cores. With few tasks the transformer is close
            to dMMSE, with one it knows it. It gets closer to ridge than to dMMSE at ten
            to twenty tasks, on the pool and on new tasks, in all three seeds. At 64
            tasks it beats the dMMSE of its pool on new tasks. Training is short:
            without a pool it is still above ridge. docs/experiments/task_diversity.md
            has the numbers. The theory at the published sizes (d = 8, P = 16; computed
            once, not stored): ridge 0.3447 (0.0001), dMMSE on its pool 0.0694 (0.0019)
            at M = 4, 0.1123 (0.0018) at 16.
    gpu     d = 8, P = 16, 6 layers, 4^0 to 4^8 tasks; not measured yet.
    paper   the published sizes, 500,000 steps, 2^0 to 2^20 tasks; not measured yet.
"""

from experiments.task_diversity.config import PRESETS as PRESETS
from experiments.task_diversity.config import Config as Config
from experiments.task_diversity.main import main as main

__all__ = ["PRESETS", "Config", "main"]
