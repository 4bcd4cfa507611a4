"""Figures of Li et al. whose settings are not published: searched, or shown impossible.

Command
    python -m experiments.li_figures [--preset cpu] [--resume RUN]
        [any field of Config, e.g. --votes.prompts 4000 --one-layer.gains 1 2 4]

What it does
    Figures 17 to 19: errors of attention that counts votes, for every task of a grid,
    beside the published levels; the best tasks are measured again on fresh prompts, and
    a linear program finds how near any error that depends on votes can come.
    Figures 8, 10, 11, 14, 15: one layer trained for every size of the second layer,
    step size and set of tasks, and measured at every stop. Figures 24 to 26: three
    layers for every optimiser, step size and initial scale. Figures 27 and 28: the
    published errors beside the exact error of the nearest neighbour. Relations that
    hold for every setting (docs/reference/derivations/published_patterns.md) are
    checked at every stop of every training.

Expect
    The levels of Figure 17 are found roughly, by one task, and those of Figure 18 but
    for its own values of tau; those of Figure 19 not by one task. The norms of Figures
    8, 10, 11 and 14 are found nearly, by a second layer of +-2/m. No setting on the
    grid has the rise of the error with pruning, or the three layers of Figures 24 to
    26. docs/experiments/li_figures.md has the numbers.
"""

from experiments.li_figures.config import PRESETS as PRESETS
from experiments.li_figures.config import Config as Config
from experiments.li_figures.main import main as main

__all__ = ["PRESETS", "Config", "main"]
