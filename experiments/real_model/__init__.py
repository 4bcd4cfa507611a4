"""The paper's question on a language model that people use: does SVD pruning help?

Loads SmolLM2-135M-Instruct (from the hub, or from the package index in 4 bits) and asks
it the seven data sets of Yao et al.: which prompt and scoring is best, accuracy against
demonstrations, condition numbers (Figure 3), accuracy by layer and rate (Figures 1 and
2), Algorithm 1 with a held-out test (Figure 4) beside searches of the same budget, one
clip for several tasks judged on a task left out, and the exact implicit update of each
block with and without pruning (Remark 4). Every answer is stored; ``--resume`` asks
what is missing. ``python -m experiments.real_model.fetch`` downloads the model.
"""

from experiments.real_model.config import PRESETS as PRESETS
from experiments.real_model.config import Config as Config
from experiments.real_model.main import main as main

__all__ = ["PRESETS", "Config", "main"]
