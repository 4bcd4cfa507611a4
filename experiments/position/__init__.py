"""Does the place of an example matter? Linear stacks and GPT-2 on regression.

Command
    python -m experiments.position [--preset cpu] [--resume RUN]
        [any field of Config, e.g. --prompts 20000 --layers 1 2 4 8]

What it does
    Moves one special example through the prompt and keeps the others in their order.
    Either it is the only relevant one (the query with its label, while every other
    example comes from another task), or it is the only wrong one. Measured are linear
    attention stacks that make steps of gradient descent, with a causal mask, whose
    weights are exact, and a GPT-2 that was trained on regression, for three seeds. Two
    paired contrasts, first and last third against the middle, say whether the curve is
    a U.
"""

from experiments.position.config import PRESETS as PRESETS
from experiments.position.config import Config as Config
from experiments.position.main import main as main

__all__ = ["PRESETS", "Config", "main"]
