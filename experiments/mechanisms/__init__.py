"""Mechanisms of attention: learning phases, kernel gradient descent, induction heads.

Command
    python -m experiments.mechanisms [--preset cpu|gpu|paper] [--resume RUN]
        [any field of Config, e.g. --features.balanced 5 10 --kernels.draws 2000]

What it does
    Huang et al.: gradient descent of softmax attention on orthonormal features, beside
    the closed form where features are equally likely; finite contexts; one dominant
    feature and its staged phases.
    Cheng et al.: the error of deep attention with a kernel on Gaussian processes, exact
    in labels and averaged over inputs, for matched and other kernels; three forms of
    the same descent.
    Olsson et al.: prefix-matching and copying scores of a circuit that is built by
    hand, of all heads of the small language model that this repository ships, and of a
    GPT-2 trained briefly on regression, where an input that comes again plays the part
    of a token that comes again. What trained models do stands under claims, not checks.

Time
    cpu     about a minute on two cores, 150 s where other programs shared them, half of
            it the training of the GPT-2.
    gpu, paper  not measured.

Expect (cpu)
    Equally likely features: descent follows the closed form within 1 % over the whole
    path, which is checked.
    One feature with probability 1/2 of eight: it is learned about ten times as soon as
    the others.
    rbf data: rbf attention reaches the error of kriging with depth; softmax and linear
    attention stay above it, and relu (not positive semi-definite in any draw) diverges.
    Circuit: all scores are those of an ideal induction head.
    Small language model: no induction head on random repeated words, which it never saw
    in training; on its own documents colons look at the label words before, mostly at
    the right one of them; the loss of a label falls with the demonstrations before it.
    GPT-2 on regression: heads look up the label of an input that came before, which the
    untrained model's do not; the error at such inputs is far below that at fresh ones.
    docs/experiments/mechanisms.md has the numbers. Trained values depend on the
    platform's rounding.
"""

from experiments.mechanisms.config import PRESETS as PRESETS
from experiments.mechanisms.config import Config as Config
from experiments.mechanisms.main import main as main

__all__ = ["PRESETS", "Config", "main"]
