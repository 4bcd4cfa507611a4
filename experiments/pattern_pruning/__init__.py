"""Pruning neurons by magnitude (Li et al.) and by SVD (Yao et al.), on the same models.

Command
    python -m experiments.pattern_pruning [--preset cpu|gpu|paper] [--resume RUN]
        [any field of Config, e.g. --coefficient-sum 1.2 --ensemble.scale 3]

What it does
    Trains one-layer models (equation 7), one a seed, and prunes neurons, rows of W_O:
    small ones first, large ones first, at random (Figures 14 and 15; Theorem 3). Beside
    the errors stand [1 - F (1 - g)]_+ for the share g of the large neurons that is
    gone, and the same with the share of the gain of the neurons of the query's sign.
    Then the bridge between the papers: clips singular values of W_O, W_V, W_Q, W_K and
    all, and prunes entries, and neurons, to as many parameters as the clipped factors
    hold. Entries also in the basis of the patterns, where a matrix is sparse: pruning
    by entry depends on the basis, clipping does not. In float32; intervals are 95 % of
    Student's t over the seeds. Figures 14 and 15 are GPT-2's: one of three blocks, of
    128 neurons each, is trained on the same prompts as pairs, and loses the same
    fraction of the neurons in every block. A neuron is a row of the matrix into the MLP
    with its bias; its norm is the row's. A resumed run continues with GPT-2; the
    one-layer models take seconds and are trained again.

Time
    cpu     about a minute on two cores, 160 s where many programs shared them; most of
            it trains and prunes GPT-2.
    gpu, paper  more seeds, draws and ranks; not measured yet.

Expect (cpu; seeds 0 to 2, S_1 = 1.1; numbers in docs/experiments/pattern_pruning.md)
    small   7 to 9 of 64 neurons. Without them the hinge error does not change: they
            never or hardly ever fire, and so were not trained. Without as many of the
            large ones it rises.
    orders  small first costs least, large first most. The formula with the shares by
            sign is within 1e-3, which is checked; the one that counts neurons is close
            at random, and less close in an order by size, which takes more of one sign.
            The slope in R is nearly F m over the number of large neurons.
    0-1     of one layer cannot rise as in Figure 14: it is 0 up to R = 0.6 in every
            order. F is homogeneous in W_O, and the sign of F is lost only where a sign
            has lost its neurons. What pruning costs here is margin. Nor does it cost
            more for small alpha' (Figure 15), beyond the seeds' interval.
    GPT-2   out of domain its 0-1 error does not rise beyond its interval at any R; in
            Figure 14 it rises from .007 to .030 at R = .4. The hinge error rises beyond
            its interval at R = .98 alone. In the hinge error small neurons cost less
            than random ones where few are left (beyond the interval at R = .9), not at
            R = .4. The norms lie around that of the start, without the gap of the
            slide. alpha' = .6 errs more than 1 in each seed, but pruning does not cost
            it more. All of it depends on luck, and a seed's luck on rounding, which
            differs with the number of seeds side by side.
            Runs that are not stored: attention nearly solves the task alone. Started at
            0.02 instead of 0.1, with 1000 steps, GPT-2 errs .0117 whole and .0104 at
            R = .99; at width 16, from 0.1, .0042 at R = 0 and at .4, .0117 at .99
            (random .0142). With six seeds (0 to 5; at most R = .99, two random orders):
            .0145 at R = 0 (.003 to .029), the change at R = .4 -.0003 [-.0033, .0027],
            random less small first -.0016; alpha' = .6 .0221 and 1 .0099 at .4; at
            R = .9 hinge .034, random .046, large first .062.
    ranks   training leaves W_O W_V of rank 2 and W_K' W_Q of rank M1 - 1 = 5 above its
            start: a logit common to all contexts does not matter.
    bridge  Clipping needs fewer parameters than entries where training leaves a low
            rank, W_O and W_V, and for all four at once. It needs more for W_Q and W_K,
            where all M1 - 1 directions count alike: few entries keep each of them in
            part, and the other matrix makes up for it; a low rank drops some
            altogether. There the 0-1 error fails too, and more easily out of domain
            than in domain. In the patterns' basis entries need fewer on W_V as well.
            Rank 1 is the least that was tried.
    No clip lowers the error beyond its interval: without pruning the hinge error is
    nearly 0.
"""

from experiments.pattern_pruning.config import PRESETS as PRESETS
from experiments.pattern_pruning.config import Config as Config
from experiments.pattern_pruning.main import main as main

__all__ = ["PRESETS", "Config", "main"]
