"""Sizes of the families of functions, and hyperparameters of the baselines."""

import dataclasses

from experiments._frame.fields import check_at_least
from experiments.garg_linear.networks import NetworkRecipe


@dataclasses.dataclass(frozen=True)
class FamilySizes:
    """Sizes of the families; a run uses only those of its own family.

    Attributes:
        sparsity: Non-zero weights of a sparse linear function.
        hidden: Hidden units of a ReLU network.
        depth: Depth of a decision tree.
    """

    sparsity: int = 3
    hidden: int = 100
    depth: int = 4

    def __post_init__(self):
        check_at_least(self, 1, "sparsity", "hidden", "depth")


@dataclasses.dataclass(frozen=True)
class Baselines:
    """Hyperparameters of the baselines that are fitted to each prompt's examples.

    Attributes:
        lasso_penalty: Penalty of the Lasso.
        tree_depth: Depth of the greedy trees.
        signs_depth: Depth of the greedy trees that see the signs of the inputs.
        network: Training of the two-layer network.
        prompts: Evaluation prompts, the first ones, to which networks and trees are
            fitted.
    """

    lasso_penalty: float = 0.01
    tree_depth: int = 2
    signs_depth: int = 4
    network: NetworkRecipe = NetworkRecipe()
    prompts: int = 256

    def __post_init__(self):
        check_at_least(self, 0, "lasso_penalty")
        check_at_least(self, 1, "tree_depth", "signs_depth")
        check_at_least(self, 2, "prompts")
