"""Implicit gradient trajectories before and after pruning (Yao et al., Remark 5).

Command
    python -m experiments.trajectories [--preset cpu|gpu] [--resume RUN]
        [any field of Config, e.g. --prompts 1000 --linear.steps 3000]

What it does
    Measures ||dW_t|| and ||G_t|| of Theorem 1 along the depth of three stacks of linear
    attention, random, gradient descent and trained, and again with one matrix of one
    layer cut to a low rank, for every layer k, kind of matrix and rank. Beside them the
    dimension m_t of the gradients, the terms of the corrected Theorem 2 (on the path
    without noise: a diagnostic) and the error. Training is float32, the rest float64.
    All layers count from 0.

Time
    cpu     6 layers, d = 5, 256 prompts: about 40 s on two cores.
    gpu     12 layers, d = 10; not measured yet.

Expect (cpu; numbers in docs/experiments/trajectories.md)
    checks              all pass: layers t < k are unchanged to the bit, all t >= k
                        change for random and trained weights, and none at all for
                        gradient descent with W_V cut.
    gradient descent    W_K of layer k cut to rank 1: ||G_k|| falls to about a quarter
                        and every later ||G_t|| grows; the error grows by about the same
                        factor whatever k is.
    trained             nearly all later norms rise. The error grows more than a
                        hundredfold for k = 0 and hardly for k = 3, 4, 5 (mean over
                        kinds and ranks).
    bound               for random and trained weights, cutting W_V, W_K or W_Q of any
                        layer lowers m_k and mostly the sum of the terms; not so where
                        the later norms explode.
"""

from experiments.trajectories.config import PRESETS as PRESETS
from experiments.trajectories.config import Config as Config
from experiments.trajectories.main import main as main

__all__ = ["PRESETS", "Config", "main"]
