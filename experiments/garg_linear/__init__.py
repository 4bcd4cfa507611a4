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
    nearest neighbours, and the exact risk of the best one-layer linear attention.
    --task trains on another family of functions, with its own methods beside the
    model: sparse linear functions (Lasso), two-layer ReLU networks (a network trained
    on each prompt) or decision trees (greedy regression trees). Errors are then divided
    by the number of non-zero weights, by d, or by 1.

Expect
    cpu     d = 5, 1 to 1.5 minutes on two cores: error below 0.05 at k = 2d.
    gpu     d = 20, 12 layers, Muon in bfloat16, 24,000 steps of 256 prompts: about
            0.02 at k = 20 and below 0.001 at k = 40.
    paper   the published recipe, 500,001 steps of 64 prompts: 0.02 and 0.0006.
    d20     the published dimension on two cores, 30 to 70 minutes: as far as 9,000
            small steps come.
    sparse, relu_network, decision_tree
            small models of the other families, d = 5, four to seven minutes each.
"""

from experiments.garg_linear.config import PRESETS as PRESETS
from experiments.garg_linear.config import Config as Config
from experiments.garg_linear.config import set_up as set_up
from experiments.garg_linear.main import main as main

__all__ = ["PRESETS", "Config", "main", "set_up"]
