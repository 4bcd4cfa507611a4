"""Config and presets of the experiment."""

import dataclasses

from experiments._frame.fields import check_at_least


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of a run.

    Attributes:
        scales: Norms beta of the patterns, each with its step size eta.
        shares: Shares alpha of relevant examples in training, descending.
        small_shares: Shares for the reduced dynamics alone, descending.
        num_relevant: Number M1 of relevant patterns.
        num_irrelevant: Number M2 of irrelevant ones.
        num_neurons: Number m of neurons.
        num_examples: Examples l of a prompt.
        steps: Training steps.
        batch_size: Prompts of a step; large, as the prediction is for infinitely many.
        prompts: Prompts on which attention is measured.
        every: Steps between two measurements of attention.
        seeds: Trained models of each setting.
        goal: Hinge loss that ends a training.
        window: Steps over which the losses of batches are averaged; odd.
    """

    scales: tuple[tuple[float, float], ...] = ((2.0, 2.0), (3.0, 1.0))
    shares: tuple[float, ...] = (1.0, 0.8, 0.6, 0.4, 0.25)
    small_shares: tuple[float, ...] = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)
    num_relevant: int = 6
    num_irrelevant: int = 24
    num_neurons: int = 64
    num_examples: int = 20
    steps: int = 500
    batch_size: int = 512
    prompts: int = 8192
    every: int = 20
    seeds: tuple[int, ...] = (0, 1, 2)
    goal: float = 0.1
    window: int = 5

    def __post_init__(self):
        # JSON stores tuples as lists.
        object.__setattr__(self, "scales", tuple(map(tuple, self.scales)))
        counts = ("steps", "batch_size", "prompts", "every", "num_examples", "window")
        check_at_least(self, 1, *counts)
        check_at_least(self, 3, "num_relevant")
        if self.steps % self.every:
            raise ValueError(
                f"every: expected a divisor of steps {self.steps}, got {self.every}"
            )
        if self.window % 2 == 0:
            raise ValueError(f"window: expected an odd number, got {self.window}")
        if not self.scales or not all(b > 0 and eta > 0 for b, eta in self.scales):
            raise ValueError(
                f"scales: expected pairs of positive numbers, got {self.scales}"
            )
        for name in ("shares", "small_shares"):
            values = getattr(self, name)
            falling = list(values) == sorted(set(values), reverse=True)
            if len(values) < 3 or not falling or not 0 < values[-1] <= values[0] <= 1:
                raise ValueError(
                    f"{name}: expected three or more shares in (0, 1], descending, "
                    f"got {values}"
                )
        if len(set(self.seeds)) < 2 or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(
                f"seeds: expected at least two seeds, all distinct, got {self.seeds}"
            )
        if not 0 < self.goal < 1:
            raise ValueError(f"goal: expected a number in (0, 1), got {self.goal}")


PRESETS = {"cpu": Config()}
TIMES = {"cpu": "2 to 3 min, 2 cores"}
