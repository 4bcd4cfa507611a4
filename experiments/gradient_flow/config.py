"""Config and presets of the experiment."""

import dataclasses

from experiments._frame.fields import check_at_least


@dataclasses.dataclass(frozen=True)
class Config:
    """Problems of the gradient flows, and how much is measured.

    Attributes:
        dim: Input dimension d of the flow of GD-beta.
        num_examples: Its examples M.
        condition: Largest over smallest positive eigenvalue of H.
        null_dim: Directions without inputs in the singular case.
        noise_var: Variance of the label noise, here and below.
        points: Times at which a path is recorded.
        descent_dim: Dimension d for descent in steps and on samples.
        step_shares: Step sizes of gradient descent over the largest stable one.
        batch_sizes: Prompts a step of descent on samples.
        sgd_share: Its step size over the largest stable one.
        seeds: Runs of descent on samples at each batch size.
        sgd_steps: Steps of each run.
        dims: Dimensions d of the settings with random starts.
        lengths: Examples M of those settings.
        num_starts: Random starts in each setting.
        start_scale: Standard deviation of the entries of the weights at the start.
        end_time: Time at which those flows end.
        max_steps: Steps of the solver after which such a flow counts as unfinished.
        seed: Seed of all draws.
    """

    dim: int = 5
    num_examples: int = 10
    condition: float = 8.0
    null_dim: int = 2
    noise_var: float = 0.25
    points: int = 121
    descent_dim: int = 3
    step_shares: tuple[float, ...] = (0.05, 0.25, 0.9)
    batch_sizes: tuple[int, ...] = (8, 32, 128)
    sgd_share: float = 0.2
    seeds: int = 16
    sgd_steps: int = 1600
    dims: tuple[int, ...] = (2, 2, 3, 3)
    lengths: tuple[int, ...] = (2, 16, 3, 24)
    num_starts: int = 200
    start_scale: float = 0.3
    end_time: float = 300.0
    max_steps: int = 10_000
    seed: int = 0

    def __post_init__(self):
        if not 0 < self.null_dim < self.dim:
            raise ValueError(
                f"null_dim: expected 1 to dim - 1 = {self.dim - 1}, got {self.null_dim}"
            )
        if len(self.dims) != len(self.lengths):
            raise ValueError(
                f"lengths: expected one for each of {len(self.dims)} dims, "
                f"got {len(self.lengths)}"
            )
        if min(self.dims) < 2:
            raise ValueError(f"dims: expected at least 2, got {self.dims}")
        check_at_least(self, 2, "seeds", "num_starts")
        check_at_least(self, 3, "points")
        counts = ("num_examples", "descent_dim", "sgd_steps", "max_steps")
        check_at_least(self, 1, *counts)
        check_at_least(self, 0, "noise_var", "end_time")
        if self.condition < 1 or not self.step_shares or not self.batch_sizes:
            raise ValueError(
                "condition, step_shares, batch_sizes: expected condition >= 1 and at "
                f"least one value of the others, got {self.condition}, "
                f"{self.step_shares} and {self.batch_sizes}"
            )
        if self.sgd_steps % 40:
            raise ValueError(
                f"sgd_steps: expected a multiple of 40, got {self.sgd_steps}"
            )

    @property
    def settings(self) -> tuple[tuple[int, int], ...]:
        """Dimension and examples of each setting with random starts."""
        return tuple(zip(self.dims, self.lengths, strict=True))


PRESETS = {
    "cpu": Config(),
    "gpu": Config(
        dim=20,
        num_examples=40,
        null_dim=5,
        seeds=64,
        num_starts=4096,
        dims=(2, 2, 2, 4, 4, 4, 8, 8),
        lengths=(2, 8, 32, 4, 16, 64, 8, 64),
    ),
    "paper": Config(
        dim=20,
        num_examples=40,
        null_dim=5,
        seeds=32,
        num_starts=1000,
        dims=(2, 2, 2, 4, 4, 4),
        lengths=(2, 8, 32, 4, 16, 64),
    ),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "1.5 to 3 min, 2 cores"}
