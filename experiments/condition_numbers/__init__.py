"""Condition numbers of every matrix of a language model: Figure 3 for any checkpoint.

Command
    python -m experiments.condition_numbers [--preset tiny|gptj|llama2] [--resume RUN]
        [--checkpoint FOLDER_OR_NAME] [any field of Config, e.g. --module attn]

What it does
    Decomposes every matrix of the layers in float64 on the host and draws its condition
    number over the layers (Yao et al. 2024, Figure 3), beside two yardsticks that the
    figure lacks: the median of random matrices of the same shape, and the value from
    which on the rounding of the checkpoint's weights decides. Says which layers
    Algorithm 1 would try, which depends on how the matrices of a module are aggregated.

Presets
    tiny    the small model that is shipped with the project; seconds, offline.
    gptj    GPT-J-6B and
    llama2  LLaMA-2-7B, from the hub or --checkpoint FOLDER; not run yet. Singular
            values are kept as they come (--cache FOLDER, or in the run), so that a
            stopped run continues with --resume.

Expect
    checks  pass: singular values reproduce the norms of the matrices.
    claims  are the paper's, with the verdict for this model.
"""

from experiments.condition_numbers.config import PRESETS as PRESETS
from experiments.condition_numbers.config import Config as Config
from experiments.condition_numbers.main import main as main

__all__ = ["PRESETS", "Config", "main"]
