"""A transformer learns linear regression in context (Garg et al. 2022).

Command
    python -m experiments.garg_linear [--preset cpu|gpu|paper|sparse|relu_network|
        decision_tree|d20] [--task linear|sparse|relu_network|decision_tree]
        [--eval-shifts] [--resume RUN]
        [any field of Config, e.g. --steps 1000 --optimizer.name adam]

What it does
    Trains GPT-2 on prompts (x_1, y_1, ..., x_k, y_k, x) with x ~ N(0, I_d),
    w ~ N(0, I_d) and y = <w, x>, and compares its squared error (divided by d) at every
    k with the predictors it should be compared with: least squares, ridge, averaging, 3
    nearest neighbours, and three exact lines: the best one-layer linear attention, the
    best gradient steps at equal depth, and (up to three layers) the lower bound for
    linear layers.
    --task trains on another family of functions, with its own methods beside the
    model: sparse linear functions (Lasso), two-layer ReLU networks (a network trained
    on each prompt) or decision trees (greedy regression trees). Errors are then divided
    by the number of non-zero weights, by d, or by 1.

Expect
    cpu     d = 5, 1 to 1.5 minutes on two cores: at k = 2d an error of at most 0.05,
            which is checked, and far below the best layer of linear attention.
    gpu     d = 20, 12 layers, Muon in bfloat16, 6,500 steps of 256 prompts: 155 s on
            an H100 with --eval-shifts, 58 s of them training steps, and errors below
            the published ones (0.011 to 0.015 at k = 20, 0.0001 at k = 40).
    paper   the published recipe, 500,001 steps of 64 prompts; not run yet. Garg et al.
            report errors of 0.02 at k = 20 and 0.0006 at k = 40.
    d20     the published dimension on two cores, 30 to 70 minutes, or twice that beside
            other programs: the errors of a short training, 9,000 small steps.
    sparse, relu_network, decision_tree
            small models of the other families, d = 5, four to seven minutes each.
    docs/experiments/garg_linear.md has the numbers of cpu, gpu and d20, and
    garg_families.md beside it those of the other families.
"""

from experiments.garg_linear.config import PRESETS as PRESETS
from experiments.garg_linear.config import Config as Config
from experiments.garg_linear.config import set_up as set_up
from experiments.garg_linear.main import main as main
from experiments.garg_linear.train import load as load

__all__ = ["PRESETS", "Config", "load", "main", "set_up"]
