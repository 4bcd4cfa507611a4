"""Config and presets of the experiment."""

import dataclasses
from typing import Literal

from experiments._frame.fields import check_at_least, check_seeds
from experiments._trained import GPT2_CPU, GPT2_GPU, Recipe, linear_recipe

SEEDS = (0, 1, 2)


@dataclasses.dataclass(frozen=True)
class Config:
    """The models, how they are pruned, and how much is measured.

    Attributes:
        gpt2: Recipe of the GPT-2.
        linear: Recipe of the linear stack.
        gpt2_ranks: Ranks kept of GPT-2's matrices, the width first.
        linear_ranks: Ranks kept of the linear stack's matrices, dim + 1 first.
        validation_prompts: Prompts of each condition on which a rate is chosen.
        test_prompts: Other prompts of each condition, for everything that is reported.
        label_noise: Noise variance of the condition with noisy demonstrations.
        error_cap: Largest error / d that a prompt counts with; predicting 0 has mean 1.
            A linear stack is a polynomial of high degree, whose mean error would be
            that of a few prompts.
        top_k: Algorithm 1's k: layers of largest condition number.
        aggregate: How the condition numbers of a module's matrices become one.
        level: Level of all intervals, and one minus the level of all tests.
    """

    gpt2: Recipe
    linear: Recipe
    gpt2_ranks: tuple[int, ...]
    linear_ranks: tuple[int, ...]
    validation_prompts: int
    test_prompts: int
    label_noise: float = 1.0
    error_cap: float = 10.0
    top_k: int = 2
    aggregate: Literal["max", "mean", "geometric_mean", "min"] = "max"
    level: float = 0.95

    def __post_init__(self):
        check_at_least(self, 2, "validation_prompts", "test_prompts")
        check_at_least(self, 0, "label_noise")
        if not 0 < self.level < 1:
            raise ValueError(f"level: expected a value within (0, 1), got {self.level}")
        if not self.error_cap > 0:
            raise ValueError(f"error_cap: expected a value > 0, got {self.error_cap}")
        if self.gpt2.num_points < 2 * self.gpt2.dim + 1:
            raise ValueError(
                f"gpt2.num_points: expected at least 2 dim + 1 = "
                f"{2 * self.gpt2.dim + 1}, got {self.gpt2.num_points}"
            )
        kinds = (("gpt2", self.gpt2.width), ("linear", self.linear.dim + 1))
        for kind, full in kinds:
            recipe, ranks = getattr(self, kind), getattr(self, f"{kind}_ranks")
            check_seeds(f"{kind}.seeds", recipe.seeds)
            if recipe.model != kind:
                raise ValueError(f"{kind}.model: expected {kind}, got {recipe.model}")
            if not 1 <= self.top_k <= recipe.num_layers:
                raise ValueError(
                    f"top_k: expected 1 to {recipe.num_layers} layers, got {self.top_k}"
                )
            if len(ranks) < 2 or ranks[0] != full or min(ranks) < 1:
                raise ValueError(
                    f"{kind}_ranks: expected at least two ranks >= 1, first the full "
                    f"{full}, got {ranks}"
                )


def _with_seeds(recipe: Recipe) -> Recipe:
    return dataclasses.replace(recipe, seeds=SEEDS)


PRESETS = {
    "cpu": Config(
        gpt2=_with_seeds(GPT2_CPU),
        linear=_with_seeds(linear_recipe(4)),
        # At width 64 these are the rates 0, .1, .25, .5, .75, .9, .95 and .98.
        gpt2_ranks=(64, 57, 48, 32, 16, 6, 3, 1),
        linear_ranks=(6, 5, 4, 3, 2, 1),
        validation_prompts=256,
        test_prompts=1024,
    ),
    "gpu": Config(
        gpt2=_with_seeds(GPT2_GPU),
        linear=_with_seeds(linear_recipe(6, dim=10, steps=4000)),
        # At width 128 these are the paper's rates 0, .1, .5, .75, .9, .95 and .99.
        gpt2_ranks=(128, 115, 64, 32, 12, 6, 1),
        linear_ranks=(11, 10, 9, 7, 5, 3, 2, 1),
        validation_prompts=2048,
        test_prompts=8192,
    ),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "5 min, 2 cores"}
