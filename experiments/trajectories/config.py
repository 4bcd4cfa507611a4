"""Config and presets of the experiment."""

import dataclasses

from experiments._frame.fields import check_at_least
from experiments._trained import Recipe, linear_recipe


@dataclasses.dataclass(frozen=True)
class Config:
    """The stacks, how they are pruned, and how much is measured.

    Attributes:
        linear: Recipe of the trained stack; the others have its shape.
        ranks: Ranks to which a matrix is cut.
        prompts: Prompts over which everything is averaged.
        label_noise: Variance of the noise of their labels.
        random_scale: Standard deviation of the random weights, times sqrt(n).
        error_cap: Largest error / d that a prompt counts with; predicting 0 has mean 1.
        shots: Demonstrations b of the noisy learner, out of N = num_points - 1.
    """

    linear: Recipe
    ranks: tuple[int, ...]
    prompts: int
    shots: int
    label_noise: float = 0.09
    random_scale: float = 0.35
    error_cap: float = 10.0

    def __post_init__(self):
        if self.linear.model != "linear":
            raise ValueError(f"linear.model: expected linear, got {self.linear.model}")
        if self.linear.num_layers < 2:
            layers = self.linear.num_layers
            raise ValueError(f"linear.num_layers: expected at least 2, got {layers}")
        n, N = self.linear.dim + 1, self.linear.num_points - 1
        if not self.ranks or not all(1 <= r < n for r in self.ranks):
            raise ValueError(
                f"ranks: expected at least one rank, each from 1 to {n - 1}, got "
                f"{self.ranks}"
            )
        check_at_least(self, 2, "prompts")
        if not 1 <= self.shots <= N:
            raise ValueError(f"shots: expected 1 to {N}, got {self.shots}")
        check_at_least(self, 0, "label_noise", "random_scale")


def _recipe(num_layers: int, dim: int, num_points: int, steps: int) -> Recipe:
    recipe = linear_recipe(num_layers, dim, steps)
    return dataclasses.replace(recipe, num_points=num_points)


PRESETS = {
    # N - 1 = 31 exceeds the 21 dimensions of the gradients, so the bound is finite.
    "cpu": Config(linear=_recipe(6, 5, 33, 1500), ranks=(1, 3), prompts=256, shots=16),
    "gpu": Config(
        linear=_recipe(12, 10, 101, 6000), ranks=(1, 3, 6), prompts=2048, shots=50
    ),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "40 s, 2 cores"}
