"""Config and presets of the experiment."""

import dataclasses
import math

from experiments._frame.fields import check_at_least
from experiments._trained import GPT2_CPU, GPT2_GPU, Recipe, linear_recipe


@dataclasses.dataclass(frozen=True)
class Config:
    """The trained models, and how much is measured.

    Attributes:
        gpt2: The transformer.
        stack: The linear stack, in which the implicit gradient exists exactly.
        parts: Parts of each training after which is measured; 0 is the start.
        eval_prompts: Prompts on which the transformer's weights are read off.
        queries: Queries a prompt, in pairs x, -x.
        subset_prompts: Pools of N demonstrations for the stack.
        subsets: Subsets of b demonstrations of each pool.
        shots: The numbers b.
        label_noise: Variance of the label noise in the curve of the Bayes predictor.
    """

    gpt2: Recipe
    stack: Recipe
    shots: tuple[int, ...]
    parts: tuple[float, ...] = (0.0, 0.03, 0.1, 0.3, 1.0)
    eval_prompts: int = 256
    queries: int = 32
    subset_prompts: int = 128
    subsets: int = 64
    label_noise: float = 0.25

    def __post_init__(self):
        if (self.gpt2.model, self.stack.model) != ("gpt2", "linear"):
            raise ValueError(
                "gpt2.model, stack.model: expected gpt2 and linear, "
                f"got {self.gpt2.model} and {self.stack.model}"
            )
        for name, recipe in (("gpt2", self.gpt2), ("stack", self.stack)):
            if recipe.snapshots or len(recipe.seeds) > 1 or recipe.noise_var:
                raise ValueError(
                    f"{name}: expected one seed, noise_var 0 and no snapshots (parts "
                    f"selects them), got seeds {recipe.seeds}, noise_var "
                    f"{recipe.noise_var:g} and snapshots {recipe.snapshots}"
                )
        d, N = self.gpt2.dim, self.pool
        if self.gpt2.num_points <= 2 * d:
            raise ValueError(
                f"gpt2.num_points: expected at least 2 dim + 1 = {2 * d + 1}, "
                f"got {self.gpt2.num_points}"
            )
        if self.queries % 2 or self.queries < 2 * d:
            raise ValueError(
                f"queries: expected an even number from 2 dim = {2 * d}, "
                f"got {self.queries}"
            )
        if not self.shots or not all(1 <= b <= N for b in self.shots):
            raise ValueError(f"shots: expected numbers from 1 to {N}, got {self.shots}")
        if not all(0 <= part <= 1 for part in self.parts):
            raise ValueError(f"parts: expected parts in [0, 1], got {self.parts}")
        check_at_least(self, 2, "eval_prompts", "subset_prompts", "subsets")

    def needs_all_steps(self) -> str:
        """Returns why the run cannot be extended by more steps."""
        return "parts names the evaluated steps as shares of all steps"

    @property
    def pool(self) -> int:
        """Number of demonstrations N of the linear stack."""
        return self.stack.num_points - 1

    def recipe(self, name: str) -> Recipe:
        """Returns the recipe with snapshots at the shares of training in ``parts``."""
        recipe = getattr(self, name)
        return dataclasses.replace(recipe, snapshots=measured_steps(recipe, self.parts))


def measured_steps(recipe: Recipe, parts: tuple[float, ...]) -> tuple[int, ...]:
    """Returns the ends of chunks at or after the given shares, and the last step."""
    chunk, steps = recipe.chunk_steps, recipe.steps
    ends = {min(math.ceil(part * steps / chunk) * chunk, steps) for part in parts}
    return tuple(sorted(ends | {steps}))


PRESETS = {
    "cpu": Config(
        gpt2=GPT2_CPU,
        stack=linear_recipe(2),
        shots=(1, 2, 3, 5, 7, 10, 14, 17, 19, 20),
    ),
    "gpu": Config(
        gpt2=GPT2_GPU,
        stack=linear_recipe(2, dim=10, steps=3000),
        shots=(1, 2, 4, 7, 10, 14, 20, 28, 36, 39, 40),
        eval_prompts=1024,
        queries=64,
        subset_prompts=512,
    ),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "80 s, 2 cores"}
