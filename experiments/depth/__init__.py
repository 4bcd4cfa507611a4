"""The limit of depth: trained linear attention beside exact bounds of L layers.

Command
    python -m experiments.depth [--preset cpu] [any field of Config, e.g. --steps 500]

What it does
    Trains L = 1 to 6 layers of linear attention in three classes, from several starts
    (of the first two classes: the best of many draws, since the risk of GD++ has local
    minima) and at three (d, N): gradient descent with learned steps, GD++ (which also
    moves the inputs), and all weights free (L = 2 and 3). Their risks on other prompts
    stand beside two exact lines: the best L gradient steps
    (``regression.optimum``) and a lower bound for L layers (``depth_floor``), which
    holds for the first two classes. Then, without training, how many layers an error
    takes as N / d varies. Risks are divided by d.

Expect
    cpu     seed 0, 8 to 13 minutes on two cores. Learned steps meet the exact line. The
            best two layers of free weights are no farther from the bound than chance
            allows; from random starts alone they do not always get there. Means of
            deeper stacks are carried by rare prompts. docs/experiments/depth.md has the
            numbers.
"""

from experiments.depth.config import PRESETS as PRESETS
from experiments.depth.config import Config as Config
from experiments.depth.main import main as main

__all__ = ["PRESETS", "Config", "main"]
