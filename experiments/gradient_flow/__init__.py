"""Gradient flow on exact risks: its limits, its rates, and the local minima it meets.

Command
    python -m experiments.gradient_flow [--preset cpu|gpu|paper]
        [any field of Config, e.g. --dim 10 --seeds 32 --start-scale 0.5]

What it does
    Theorem 6.3 of Zhang, Wu and Bartlett (2024): the flow of GD-beta from a random
    start, for a regular and a singular H; paths, invariants, and distances and excess
    risk beside their proved bounds. Then gradient descent on the exact risk at several
    step sizes, and on fresh prompts at several batch sizes, beside the flow. Then what
    the theorem does not cover: the flow of all weights of an LTB, and of an LSA at
    beta* = 0, from many random starts; the share that reaches the least risk, with 95 %
    intervals, and whether the rest lies at the spurious minimum of
    ``regression.landscape.spurious_minimum``.

Expect
    cpu     d = 5, M = 10, condition 8, 200 starts in 8 settings, seed 0: about two
            minutes on two cores. The flow ends at the best risk up to rounding for both
            H; frozen parts move by rounding alone. The start converges several times as
            fast as its proved rate, the preconditioner about a quarter faster than its
            own (slopes of the curves in rates.png; they are not stored). Descent on
            samples settles above the least risk, lower for larger batches. Of the LTB's
            random starts a part, in the largest setting all, reaches the least risk,
            and the others rest at the spurious minimum. Of the LSA's about half reach
            it; at (d, M) = (3, 24), where the spurious point is not proved to be a
            minimum, most others rest elsewhere and some still move at the end.
            docs/experiments/gradient_flow.md has the numbers.
    gpu     d = 20, 4,096 starts in 16 settings up to d = 8; not measured yet.
    paper   d = 20, 1,000 starts in 12 settings up to d = 4; not measured yet.
"""

from experiments.gradient_flow.config import PRESETS as PRESETS
from experiments.gradient_flow.config import Config as Config
from experiments.gradient_flow.main import main as main

__all__ = ["PRESETS", "Config", "main"]
