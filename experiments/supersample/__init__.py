"""Supersample bounds of trained models beside their errors on new points of a task.

Command
    python -m experiments.supersample [--preset cpu] [--resume RUN]
        [any field of Config, e.g. --prompts 20000 --levels 32]

What it does
    Evaluates the losses of in-context learners on both demonstrations of each pair of a
    supersample, and from them the square-root and the optimal bound with their
    confidence limits. Learners are gradient descent, ridge regression, linear attention
    stacks, a GPT-2 along its training, along shots, label noise and the rank kept by
    SVD pruning, a pattern transformer along its training, and the small language model
    on two tasks. The generalisation error is measured on other prompts. Kendall's tau
    says whether the bounds order the models as their errors do, and whether norms and
    condition numbers of the weights do. Theorem 2 of Yao et al. stands beside them
    where it applies.
"""

from experiments.supersample.config import PRESETS as PRESETS
from experiments.supersample.config import Config as Config
from experiments.supersample.main import main as main

__all__ = ["PRESETS", "Config", "main"]
