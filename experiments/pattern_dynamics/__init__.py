"""Training on pattern tasks predicted by reduced dynamics, and the exponent in alpha.

Command
    python -m experiments.pattern_dynamics [--preset cpu] [any field of Config]

What it does
    Trains the one-layer model of Li et al. on all tasks for several shares alpha of
    relevant examples, at two norms beta of the patterns. Beside each training stands
    what ``patterns.reduced_training`` predicts from its weights at the start: attention
    on the query's pattern, hinge loss and the step at which it falls below 0.1. Then
    reduced dynamics alone, for smaller alpha: is the number of steps a power of alpha,
    as Theorem 1 bounds it (alpha^(-2/3)), or A / alpha + B?

Expect
    cpu     predicted steps within 5 % of those of training at beta = 2 and 3, and
            attention at the end within 0.015; both are checked. The slope of steps in
            alpha falls towards -1 as alpha falls: it is a crossover.
            docs/experiments/pattern_dynamics.md has the numbers.
"""

from experiments.pattern_dynamics.config import PRESETS as PRESETS
from experiments.pattern_dynamics.config import Config as Config
from experiments.pattern_dynamics.main import main as main

__all__ = ["PRESETS", "Config", "main"]
