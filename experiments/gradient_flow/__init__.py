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
    ``ltb.spurious_minimum``.

Expect
    cpu     d = 5, M = 10, condition 8, 200 starts in 8 settings, seed 0: about two and
            a half minutes on two cores. The flow ends with excess below 1e-30 for both
            H; frozen parts move by 1e-15. The start converges about four times as
            fast as its proved rate here, the preconditioner a third faster than its
            own, the constant of which is a hundred times too large.
            Descent on samples settles at excess 0.08, 0.02 and 0.004 for batches of 8,
            32 and 128. Random starts of the LTB that reach the least risk: 103, 119,
            158 and 200 of 200 for (d, M) = (2, 2), (2, 16), (3, 3), (3, 24); all others
            rest at the spurious minimum to three digits. LSA: 103, 101, 98 and 103; at
            (3, 24), where the spurious point is not proved to be a minimum, 82 rest at
            excess 0.58 below it (0.77), 5 at it, and 10 still move at t = 300.
    gpu     d = 20, 4,096 starts in 16 settings up to d = 8; not measured yet.
    paper   d = 20, 1,000 starts in 12 settings up to d = 4; not measured yet.
"""

from experiments.gradient_flow.config import PRESETS as PRESETS
from experiments.gradient_flow.config import Config as Config
from experiments.gradient_flow.main import main as main

__all__ = ["PRESETS", "Config", "main"]
