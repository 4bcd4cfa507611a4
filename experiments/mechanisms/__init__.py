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
    cpu     150 s on two cores that other programs shared, half of it the training of
            the GPT-2.
    gpu, paper  not measured.

Expect (cpu)
    K = 5, 10, 20: attention 1/2 after 63.2, 287.8 and 1089.8 steps (closed form 63.2,
    287.6, 1089.3); loss below 1e-3 after 2409.8, 5619.1, 12396.4 (2412.0, 5621.0,
    12398.0). Over the whole path t(u) is off by 0.4 % at most, L(t) by 0.6 %.
    One feature with probability 1/2 of eight: learned (L < 0.01) after 67 steps, the
    others after 666; their own attention overtakes the dominant one's at 119.
    rbf data, over 400 draws: rbf attention 0.740, 0.661, 0.623, 0.611 after 1, 3, 10
    and 100 layers, kriging 0.611; softmax ends at 0.710, linear at 1.156, relu (not
    positive semi-definite in any draw) at 752 after 100 layers.
    Circuit: prefix 1 and 0, uniform 0.0313, copying 1, accuracy 1.
    Small language model: no induction head on random repeated words (largest score
    0.036, uniform 0.031), which it never saw in training; on its own documents colons
    look at the label words before (0.87, uniform 0.17) and at the right one of them
    (0.85 of that attention, 0.46 by count); the loss of a label falls from 1.40 at the
    second demonstration to 0.09 at the sixteenth.
    GPT-2 on regression: two heads look up the label of an input that came before (0.66
    and 0.54, uniform 0.07, untrained at most 0.07); error / d at such inputs 0.027, at
    fresh ones 0.328. Trained values depend on the platform's rounding.
"""

from experiments.mechanisms.config import PRESETS as PRESETS
from experiments.mechanisms.config import Config as Config
from experiments.mechanisms.main import main as main

__all__ = ["PRESETS", "Config", "main"]
