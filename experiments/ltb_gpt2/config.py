"""Config and presets of the experiment: a recipe and the four cells of the table."""

import dataclasses
import itertools
from typing import NamedTuple

from experiments._frame.fields import check_at_least
from experiments._trained import Recipe, check_snapshots
from icltheory.training import OptimizerConfig

WITH_MLP, WITHOUT_MLP = "GPT-2", "GPT-2 without MLP"


class ModelSetting(NamedTuple):
    """One cell of the table: a model and a prior mean.

    Attributes:
        mlp: Whether the blocks have their MLP.
        mean: Every coordinate of the prior mean beta*.
    """

    mlp: bool
    mean: float

    @property
    def model(self) -> str:
        """Name of the model in the table."""
        return WITH_MLP if self.mlp else WITHOUT_MLP

    @property
    def name(self) -> str:
        """Name of the cell's checkpoints and metrics."""
        return f"{'mlp' if self.mlp else 'no_mlp'}_mean_{self.mean:g}"


# Zhang, Wu and Bartlett 2024, Table 1; its d, M, sigma and Psi are unknown.
PAPER_TABLE = {
    ModelSetting(True, 0.0): 0.003,
    ModelSetting(False, 0.0): 0.024,
    ModelSetting(True, 10.0): 0.013,
    ModelSetting(False, 10.0): 8.871,
}


@dataclasses.dataclass(frozen=True)
class Config:
    """The trained models, and how much is measured.

    Attributes:
        recipe: GPT-2 with its MLP at prior mean zero; the cells change these two alone.
            Errors are measured at its snapshots too.
        mean: Every coordinate of the prior mean of the second column.
        eval_prompts: Fresh prompts, the same for all models of a column.
        bayes_draws: Draws of the inputs for the average Bayes risk.
        lsa_starts: Starts of the search for the best linear attention layer.
        removal_prompts: Prompts on which directions are fitted, and as many on which
            their removal is measured.
        random_directions: Random directions that are removed for comparison.
    """

    recipe: Recipe
    mean: float = 10.0
    eval_prompts: int = 16_384
    bayes_draws: int = 40_000
    lsa_starts: int = 32
    removal_prompts: int = 4096
    random_directions: int = 4

    def __post_init__(self):
        recipe = self.recipe
        if recipe.model != "gpt2" or not recipe.mlp or recipe.task_mean:
            raise ValueError(
                "recipe: expected model gpt2, mlp True and task_mean 0 (the cells "
                f"change them), got {recipe.model}, {recipe.mlp} and "
                f"{recipe.task_mean:g}"
            )
        if recipe.loss_points != "last":
            raise ValueError(
                "recipe: expected the loss of the last question, got "
                f"{recipe.loss_points}"
            )
        check_snapshots(recipe.snapshots, recipe.steps, recipe.chunk_steps)
        if len(set(recipe.seeds)) < len(recipe.seeds):
            raise ValueError(
                f"recipe.seeds: expected distinct seeds, got {recipe.seeds}"
            )
        if recipe.dim < 2:
            raise ValueError(f"recipe.dim: expected at least 2, got {recipe.dim}")
        if not self.mean:
            raise ValueError("mean: expected a value other than 0, got 0")
        check_at_least(self, 2, "eval_prompts", "bayes_draws", "lsa_starts")
        check_at_least(self, 2, "removal_prompts")
        check_at_least(self, 1, "random_directions")

    @property
    def num_examples(self) -> int:
        """Number of examples M per prompt."""
        return self.recipe.num_points - 1

    @property
    def means(self) -> tuple[float, float]:
        """Prior means of the table's two columns."""
        return 0.0, self.mean

    @property
    def cells(self) -> tuple[ModelSetting, ...]:
        """The four cells of the table, column by column."""
        pairs = itertools.product(self.means, (True, False))
        return tuple(ModelSetting(mlp, mean) for mean, mlp in pairs)

    @property
    def cells_as_trained(self) -> tuple[ModelSetting, ...]:
        """The cells in order of training, the slowest column first."""
        return self.cells[2:] + self.cells[:2]

    def recipe_of(self, cell: ModelSetting) -> Recipe:
        """Returns the recipe of a cell."""
        return dataclasses.replace(self.recipe, mlp=cell.mlp, task_mean=cell.mean)


# Rates and weight decay were chosen, here and at the paper's size, by the error with
# MLP at mean ten, of one seed that is not in the table. A first choice had been made
# with the table's results known (see ``__init__``).
_OPTIMIZER = OptimizerConfig(
    "muon",
    4e-3,
    adam_learning_rate=1.6e-2,
    schedule="cosine",
    warmup_steps=200,
    clip_norm=1.0,
    b2=0.95,
)
_CPU = Recipe(
    model="gpt2",
    dim=2,
    num_points=6,
    num_layers=3,
    width=32,
    num_heads=4,
    steps=5000,
    batch_size=64,
    optimizer=_OPTIMIZER,
    loss_points="last",
    token_layout="matrix",
    noise_var=0.01,
    seeds=(0, 1, 2),
    chunk_steps=250,
    checkpoint_every=1000,
)

# The paper's model, on the same prompts as the preset cpu.
_GPU = dataclasses.replace(_CPU, num_layers=6, width=128, init_std=0.05, steps=8000)

# Without label noise the Bayes risk is 0, so that every published error is possible. Of
# two pairs of rates, these and 4e-3 with 1.6e-2, these had the smaller error with MLP
# at mean ten after 2,000 steps (4.53 and 5.26), for one seed, 100, at d = 5. No result
# of the table's seeds or without MLP was known before.
_NOISELESS = dataclasses.replace(
    _CPU,
    dim=5,
    num_points=21,
    width=64,
    batch_size=32,
    noise_var=0.0,
    steps=10_000,
    optimizer=dataclasses.replace(
        _OPTIMIZER, learning_rate=1.2e-2, adam_learning_rate=8e-3
    ),
    seeds=(0, 1),
    snapshots=(250, 500, 750, 1000, 1500, 2000, 3000, 4000, 5000, 6250, 7500, 10_000),
)
# The sizes of Garg et al., d = 20 and M = 2 d, for few steps of one seed.
_D20 = dataclasses.replace(
    _NOISELESS,
    dim=20,
    num_points=41,
    steps=2000,
    seeds=(0,),
    snapshots=(50, 100, 200, 300, 400, 500, 600, 800, 1000, 1250, 1500, 2000),
    chunk_steps=50,
    checkpoint_every=500,
)

PRESETS = {
    "cpu": Config(_CPU),
    "gpu": Config(_GPU),
    # These are Garg's settings, which the paper says it follows unless it states
    # others.
    "paper": Config(
        dataclasses.replace(
            _GPU,
            dim=20,
            num_points=41,
            noise_var=0.0,
            init_std=0.02,
            steps=500_000,
            optimizer=OptimizerConfig("adam", 1e-4),
            chunk_steps=1000,
            checkpoint_every=10_000,
        )
    ),
    # Without noise, exact risks need few draws.
    "noiseless": Config(_NOISELESS, bayes_draws=1024, removal_prompts=2048),
    "d20": Config(_D20, bayes_draws=1024, removal_prompts=1024, random_directions=2),
}
# Measured times; the other presets have not been run yet.
TIMES = {
    "cpu": "3 to 7 min, 2 cores",
    "gpu": "1 h, 3 cores",
    "noiseless": "20 min, 2 cores",
    "d20": "40 min, 2 busy cores",
}
