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
    cpu     160 s on two cores that many programs shared: 63 s training GPT-2, 37 s
            pruning it; the rest is 34 s on free ones.
    gpu, paper  more seeds, draws and ranks; not measured yet.

Expect (cpu; seeds 0 to 2, S_1 = 1.1)
    small   9, 7 and 8 of 64 neurons. Without them the hinge error does not change: they
            never fire, or on 2 % of the prompts (seed 1), and so were not trained.
            Without as many of the large ones it is 0.050, 0.064 and 0.018.
    orders  at R = 0.4: small first 0.196, random 0.310, large first 0.411. The formula
            with the shares by sign is off by 2e-4 at most, the one that counts neurons
            by 0.02 at random and by 0.12 in an order by size, which takes more of one
            sign. The slope in R is 0.95 of F m over the number of large neurons.
    0-1     of one layer cannot rise as in Figure 14: 0.0000 up to R = 0.6 in every
            order. F is homogeneous in W_O, and the sign of F is lost only where a sign
            has lost its neurons. What pruning costs here is margin. Nor does it cost
            more for small alpha' (Figure 15), beyond the seeds' interval.
    GPT-2   its 0-1 error does not rise up to R = 0.4 either, nor up to 0.6. Out of
            domain, three seeds, mean:
                R                0     .1    .2    .4    .6    .8    .9    .98
                small first    .0023 .0020 .0023 .0013 .0016 .0026 .0072 .0163
                random         .0023 .0018 .0014 .0014 .0023 .0063 .0090 .0176
                large first    .0023 .0013 .0013 .0023 .0036 .0065 .0104 .0182
                small, alpha' .6   .0085 at R = 0, .0094 at .4; alpha' 1: .0016, .0013
            (published, small first: .007 .0057 .0085 .030 at R = 0, .1, .2, .4, random
            .044 at .4). The change at R = .4 is -.0010 [-.0074, .0054]; the hinge rises
            beyond its interval at R = .98 alone. The orders part where few neurons are
            left: at .8 small first costs .008 [.004, .012] less hinge than random.
            Attention nearly solves the task alone: started at 0.02 instead of 0.1, with
            1000 steps, GPT-2 errs .0117 whole and .0104 at R = .99; at width 16, from
            0.1, .0042 at R = 0 and at .4, .0117 at .99 (random .0142). The norms
            lie around the .57 of the start, .35 to .80, without a gap: the largest
            ratio of two neighbours is 1.02 to 1.18 (2.2 on the slide).
            alpha' = .6 errs more than 1 in each seed, before and after pruning, by
            .0081 [-.0004, .0167] at .4; but pruning does not cost it more.
            All of it depends on luck, and a seed's luck on rounding, which differs with
            the number of seeds side by side. With six (0 to 5; at most R = .99, two
            random orders): .0145 at R = 0 (.003 to .029), the change at R = .4 -.0003
            [-.0033, .0027], random less small first -.0016; alpha' = .6 .0221 and 1
            .0099 at .4; at R = .9 hinge .034, random .046, large first .062.
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
