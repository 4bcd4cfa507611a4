"""Config and presets of the experiment."""

import dataclasses

from experiments._frame.fields import check_at_least


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the stacks, and how they are trained.

    Attributes:
        dims: Dimension d of each setting.
        lengths: Examples N of each setting.
        max_layers: Layers L of gradient steps and GD++, from 1 on.
        free_layers: Layers L of stacks whose weights are all free.
        draws: Random draws of the steps of gradient steps and of GD++, for each depth.
        starts: Those of least risk, from which training starts.
        steps: Training steps of gradient steps and GD++.
        batch_size: Inputs of a step.
        rate: Largest learning rate of Adam; it falls to zero like a cosine.
        free_starts: Random starts of free weights, and as many from the best GD++.
        free_steps: Their training steps.
        free_batch: Prompts of a step.
        free_rate: Their largest learning rate.
        free_scale: Standard deviation of the entries of a random start.
        eval_prompts: Other prompts on which all are compared.
        phase_dim: Dimension d of the picture of depth against examples.
        phase_layers: Its largest number of layers.
        phase_errors: Errors whose depth is drawn.
        seed: Seed of all draws.
    """

    dims: tuple[int, ...] = (5, 5, 10)
    lengths: tuple[int, ...] = (20, 10, 20)
    max_layers: int = 6
    free_layers: tuple[int, ...] = (2, 3)
    draws: int = 1024
    starts: int = 16
    steps: int = 3000
    batch_size: int = 512
    rate: float = 0.02
    free_starts: int = 3
    free_steps: int = 2000
    free_batch: int = 256
    free_rate: float = 4e-3
    free_scale: float = 0.2
    eval_prompts: int = 65_536
    phase_dim: int = 20
    phase_layers: int = 16
    phase_errors: tuple[float, ...] = (0.3, 0.1, 0.03, 0.01)
    seed: int = 0

    def __post_init__(self):
        if len(self.dims) != len(self.lengths):
            raise ValueError(
                f"lengths: expected one for each of {len(self.dims)} dims, "
                f"got {len(self.lengths)}"
            )
        counts = ("max_layers", "starts", "steps", "batch_size", "free_starts")
        free = ("free_steps", "free_batch")
        check_at_least(self, 1, *counts, *free, "phase_dim", "phase_layers")
        check_at_least(self, 2, "eval_prompts")
        check_at_least(self, self.starts, "draws")
        if not self.free_layers or min(self.free_layers) < 1:
            raise ValueError(
                f"free_layers: expected at least 1 each, got {self.free_layers}"
            )
        if max(self.free_layers) > self.max_layers:
            raise ValueError(
                f"free_layers: expected at most max_layers = {self.max_layers}, whose "
                f"GD++ they start from, got {self.free_layers}"
            )

    @property
    def settings(self) -> tuple[tuple[int, int], ...]:
        """Dimension and examples of each setting."""
        return tuple(zip(self.dims, self.lengths, strict=True))


PRESETS = {"cpu": Config()}
TIMES = {"cpu": "8 to 13 min, 2 cores"}
