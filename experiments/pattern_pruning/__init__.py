"""Neurons by magnitude (Li et al.) and singular values (Yao et al.) on the same models.

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
    Student's t over the seeds.

Time
    cpu     34 s on two cores that other programs shared, half of it compiling.
    gpu, paper  more seeds, draws and ranks; not measured yet.

Expect (cpu; seeds 0 to 2, S_1 = 1.1)
    small   9, 7 and 8 of 64 neurons. Without them the hinge error does not change: they
            never fire, or on 2 % of the prompts (seed 1), and so were not trained.
            Without as many of the large ones it is 0.050, 0.064 and 0.018.
    orders  at R = 0.4: small first 0.196, random 0.310, large first 0.411. The formula
            with the shares by sign is off by 2e-4 at most, the one that counts neurons
            by 0.02 at random and by 0.12 in an order by size, which takes more of one
            sign. The slope in R is 0.95 of F m over the number of large neurons.
    0-1     does not rise as in Figure 14, which is GPT-2's: 0.0000 up to R = 0.6 in
            every order. F is homogeneous in W_O, and the sign of F is lost only where a
            sign has lost its neurons. What pruning costs here is margin. Nor does it
            cost more for small alpha' (Figure 15), beyond the seeds' interval.
    ranks   training leaves W_O W_V of rank 2 (singular values 15, 6.2, 0.06) and W_K'
            W_Q of rank M1 - 1 = 5 above its start (1.5 to 0.94, then 0.04): a logit
            common to all contexts does not matter.
    bridge  least share of the parameters for a hinge error out of domain within 0.01:
                     clipped   entries   entries, patterns' basis   neurons
            W_O       0.065     0.39            0.25                 0.85
            W_V       0.067     0.19            0.033
            W_Q, W_K  0.156     0.033           0.033
            all       0.154     0.40            0.25
            (0.033, rank 1, is the least that was tried.) Clipping wins where training
            leaves a low rank, W_O and W_V, and all four at once. It loses on W_Q and
            W_K, where all M1 - 1 directions count alike: few entries keep each of them
            in part, and the other matrix makes up for it; a low rank drops some
            altogether. There the 0-1 error fails too, 0.13 at rank 2, and more easily
            out of domain: rank 3 leaves a hinge error of 0.01 in domain and of 0.21 out
            of domain. In the patterns' basis entries win on W_V as well.
    No clip lowers the error: without pruning it is 1e-4 at most.
"""

from experiments.pattern_pruning.config import PRESETS as PRESETS
from experiments.pattern_pruning.config import Config as Config
from experiments.pattern_pruning.main import main as main

__all__ = ["PRESETS", "Config", "main"]
