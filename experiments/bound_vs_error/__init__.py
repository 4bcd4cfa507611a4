"""True generalisation errors against every variant of Theorem 2 (Yao et al. 2024).

Command
    python -m experiments.bound_vs_error [--preset cpu|gpu|paper] [--resume RUN]
        [any field of Config, e.g. --rows 5 100 50 2 --replicates 1024 --seed 1]

What it does
    Linear regression, x ~ N(0, I), y = beta.x + 0.5 eps, |beta| = 1; weights that make
    one step of gradient descent a layer (step 0.5), or dense weights of width 3; the
    Gaussian noise of Assumption 1; the loss is the squared error cut at 2, so R = 1 and
    the trivial bound is 2. For each row (d, N, b, L) the true error by Monte Carlo, its
    expected loss exact, beside the bound as printed, with its numerator made valid (F),
    with |G_t| (G), with the population's centre (opt), with the prior N(g, Sigma_mu/b)
    (aniso), with a prior that saw N/2, 0.9N or N - 1 of the demonstrations, and, for
    the transformer without noise, the smoothing bound at sigma^2 = c/N for c = 0.01,
    0.1, 1 and 10; for both learners the supersample bound with its confidence limit.
    Then errors and bounds against N, and how large N would have to be. Numbers of an
    independent simulation stand beside them (``reference.py``).

Expect
    cpu     32 rows of 512 to 4,096 replicates, seed 0, float64; one to two minutes on
            two cores. The bound as printed is infinite in every row. The best valid
            variant is several to dozens of times the true error. F is larger, and above
            the trivial bound where demonstrations per dimension are fewest. For generic
            weights, whose error is smaller, the ratios are larger. The supersample
            bound is close to the error where that is above 0.02. At b = N/2 the error
            falls like 1/N and the best variant like N^-1/2; at b = 20 both like 1/N.
            For width 4096 and ten demonstrations: infinite. The numbers are in
            docs/experiments/bound_vs_error.md. All that the reference has agree with it
            within four standard errors; with the replicates of ``paper``, a run that is
            not stored, the largest |z| was 2.4.
    gpu     36 rows, N up to 10,000, 4,096 to 32,768 replicates; not measured on a GPU.
    paper   the same; nine minutes on two busy cores.

What the terms do not depend on
    For weights whose gradients fill {A X B : X symmetric} with dimension n(n + 1)/2,
    the terms of the held-out prior and of the population's Gaussian are the same number
    in all layers and for all such weights (``invariance.py``); for smaller supports,
    those of gradient descent included, they are not.
"""

from experiments.bound_vs_error.config import PRESETS as PRESETS
from experiments.bound_vs_error.config import Config as Config
from experiments.bound_vs_error.main import main as main

__all__ = ["PRESETS", "Config", "main"]
