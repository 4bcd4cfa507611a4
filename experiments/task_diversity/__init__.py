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
            four to five minutes on two cores. One task: 0.0002 on it. 4 tasks: 0.043
            (s.e. 0.005) from dMMSE and 0.27 (0.03) from ridge on the pool. 64 tasks:
            0.098 (0.002) and 0.068 (0.005); error 0.428 on the pool, where dMMSE has
            0.328, and 0.444 on new tasks, where dMMSE has 0.473 and ridge 0.367. Closer
            to ridge from M = 12, 15, 15 (pool) and 10, 12, 18 (new tasks), seeds 0, 1,
            2. Training is short: without a pool 0.059 (0.004) of error is left above
            ridge. The theory at the published sizes (d = 8, P = 16): ridge 0.3447
            (0.0001), dMMSE on its pool 0.0694 (0.0019) at M = 4, 0.1123 (0.0018) at 16.
    gpu     d = 8, P = 16, 6 layers, 4^0 to 4^8 tasks; not measured yet.
    paper   the published sizes, 500,000 steps, 2^0 to 2^20 tasks; not measured yet.
"""

from experiments.task_diversity.config import PRESETS as PRESETS
from experiments.task_diversity.config import Config as Config
from experiments.task_diversity.main import main as main

__all__ = ["PRESETS", "Config", "main"]
