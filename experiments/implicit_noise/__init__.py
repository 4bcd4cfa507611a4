"""Noise of the implicit gradient: the error due to few shots and due to training.

Command
    python -m experiments.implicit_noise [--preset cpu|gpu] [--resume RUN]
        [any field of Config, e.g. --gpt2.steps 1000 --shots 1 5 10]

What it does
    Trains a GPT-2 and a linear stack on noiseless linear regression and measures them
    at several steps (Yao et al. 2024, Appendix C.4).
    GPT-2: the weight that its answers imply, by a fit over many queries. Its error is
    the error of least squares on the same examples (shots) plus the distance from least
    squares (training); the product of the two has mean zero, because least squares is
    the mean of w given noiseless examples.
    Stack: |G(b) - G(N)|^2 / |G(N)|^2 for b of N demonstrations, normalised by 1/b,
    against tr C_t, against fresh demonstrations in every layer, and against eq. (4).

Expect
    cpu     d = 5, N = 20, one to two minutes on two cores. Shots leave 1 - k/d: a
            threshold at k = d, which label noise removes (Bayes predictor, variance
            1/4). The transformer has none: at k = d its error is well above 0, and it
            still falls. What training leaves is largest at k = d once the model has
            learned. tr C_1 is the noise of layer 1. In layer 2 of the trained stack
            tr C_2 is below the noise of prompts; at b = 10 fresh demonstrations and
            eq. (4), independent noise as in Assumption 1, have about ten times that of
            a prompt, but with fewer than 5 shots eq. (4) has less than a prompt.
            docs/experiments/implicit_noise.md has the numbers.
    gpu     d = 10, 6 layers, 20,000 steps, N = 40; not measured yet.
"""

from experiments.implicit_noise.config import PRESETS as PRESETS
from experiments.implicit_noise.config import Config as Config
from experiments.implicit_noise.main import main as main

__all__ = ["PRESETS", "Config", "main"]
