"""Config and presets of the experiment."""

import dataclasses

from experiments._frame.fields import check_at_least, check_seeds
from experiments._trained import GPT2_CPU, Recipe
from icltheory.training import OptimizerConfig


@dataclasses.dataclass(frozen=True)
class Config:
    """The trained models, their pools of tasks, and how much is measured.

    Attributes:
        recipe: The transformer and its training; one pool a seed and size.
        pool_sizes: Numbers of tasks M, ascending; then 0 for no pool: every prompt has
            a new task.
        runs_at_once: Runs that share one batched program; the others wait for their
            turn within the step.
        eval_prompts: Fresh prompts on which a run is measured, from its pool and with
            new tasks each.
        theory_pools: Pools over which the risk of discrete MMSE is averaged.
        theory_prompts: Prompts a pool for that.
        ridge_draws: Draws of the inputs for the risk of ridge.
    """

    recipe: Recipe
    pool_sizes: tuple[int, ...]
    runs_at_once: int = 1
    eval_prompts: int = 4096
    theory_pools: int = 64
    theory_prompts: int = 256
    ridge_draws: int = 20_000

    def __post_init__(self):
        recipe = self.recipe
        if (recipe.model, recipe.loss_points) != ("gpt2", "all"):
            raise ValueError(
                "recipe: expected model gpt2 and loss_points all, got "
                f"{recipe.model} and {recipe.loss_points}"
            )
        if recipe.task_mean:
            raise ValueError(
                "recipe.task_mean: expected 0, for which ridge is the Bayes predictor, "
                f"got {recipe.task_mean}"
            )
        if recipe.snapshots:
            raise ValueError(f"recipe.snapshots: expected none, got {recipe.snapshots}")
        if not recipe.noise_var > 0:
            raise ValueError(
                "recipe.noise_var: expected a value > 0 (without noise two examples "
                f"tell the tasks of a pool apart), got {recipe.noise_var}"
            )
        check_seeds("recipe.seeds", recipe.seeds)
        sizes = self.finite_sizes
        if (
            len(sizes) < 2
            or self.pool_sizes[len(sizes) :] != (0,)
            or sizes[0] < 1
            or sorted(set(sizes)) != list(sizes)
        ):
            raise ValueError(
                "pool_sizes: expected two or more ascending sizes from 1, then 0 for "
                f"no pool, got {self.pool_sizes}"
            )
        counts = ("eval_prompts", "theory_pools", "theory_prompts", "ridge_draws")
        check_at_least(self, 2, *counts)
        check_at_least(self, 1, "runs_at_once")

    @property
    def finite_sizes(self) -> tuple[int, ...]:
        """Sizes of the finite pools, without the entry for no pool."""
        return self.pool_sizes[:-1]

    def runs(self) -> list[tuple[int, int]]:
        """Pool size and seed of every run, ordered by size."""
        return [(size, seed) for size in self.pool_sizes for seed in self.recipe.seeds]


# Raventos et al., Section 3 and Appendix: GPT-2 with 8 layers, width 128 and 2 heads.
_PAPER = Recipe(
    model="gpt2",
    dim=8,
    num_points=16,
    num_layers=8,
    width=128,
    num_heads=2,
    init_std=0.02,
    steps=500_000,
    batch_size=256,
    noise_var=0.25,
    optimizer=OptimizerConfig("adam", 1e-3, schedule="triangle"),
    seeds=(0, 1),
    chunk_steps=1000,
    checkpoint_every=10_000,
)

PRESETS = {
    "cpu": Config(
        # With pairs as tokens two layers suffice; with interleaved inputs and labels,
        # the first layer would only join them.
        recipe=dataclasses.replace(
            GPT2_CPU,
            dim=3,
            num_points=8,
            num_layers=2,
            width=32,
            token_layout="matrix",
            init_std=0.2,
            steps=1000,
            noise_var=0.25,
            optimizer=dataclasses.replace(
                GPT2_CPU.optimizer, learning_rate=1e-2, adam_learning_rate=1e-2
            ),
            seeds=(0, 1, 2),
        ),
        pool_sizes=(1, 4, 16, 64, 256, 0),
    ),
    "gpu": Config(
        recipe=dataclasses.replace(
            _PAPER,
            num_layers=6,
            init_std=0.05,
            steps=8000,
            optimizer=dataclasses.replace(
                GPT2_CPU.optimizer,
                learning_rate=3e-3,
                adam_learning_rate=1e-3,
                warmup_steps=80,
            ),
            chunk_steps=250,
            checkpoint_every=4000,
        ),
        pool_sizes=(1, 64, 4096, 0),
        runs_at_once=20,
        eval_prompts=16_384,
    ),
    "paper": Config(
        recipe=_PAPER,
        pool_sizes=(*(2**k for k in range(21)), 0),
        runs_at_once=11,
        eval_prompts=16_384,
    ),
}
# Measured times; the preset paper has not been run yet.
TIMES = {"cpu": "4 to 7 min, 2 cores", "gpu": "4 min, one H200"}
