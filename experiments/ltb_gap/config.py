"""Config and presets of the experiment."""

import dataclasses

from experiments._frame.fields import check_at_least


@dataclasses.dataclass(frozen=True)
class Config:
    """The settings, and how the models are trained.

    Attributes:
        dim: Input dimension d where it does not vary.
        num_examples: Examples M where they do not vary.
        mean_norm: ||beta*|| where it does not vary.
        noise_var: Noise variance sigma^2 where it does not vary.
        mean_norms: Values of ||beta*|| at which models are trained.
        examples: Values of M at which models are trained.
        dims: Values of d at which models are trained.
        noise_vars: Values of sigma^2 at which models are trained.
        seeds: Seeds of the trained models.
        steps: Steps of training.
        batch_size: Prompts a step; an LSA and an LTB of a seed see the same ones.
        learning_rate: Largest step size of Adam.
        init_std: Standard deviation of the random starts.
        bayes_samples: Draws of the inputs for the Bayes risk.
        phase_points: Side of the grid of the phase picture.
        chunk_steps: Steps a dispatch, and a line of metrics.jsonl.
        checkpoint_every: Steps between checkpoints.
    """

    dim: int = 5
    num_examples: int = 20
    mean_norm: float = 3.0
    noise_var: float = 0.25
    mean_norms: tuple[float, ...] = (0.1, 0.5, 1.5, 3.0, 10.0)
    examples: tuple[int, ...] = (5, 10, 20, 40)
    dims: tuple[int, ...] = (1, 2, 5, 8)
    noise_vars: tuple[float, ...] = (0.01, 0.25, 1.0, 5.0)
    seeds: tuple[int, ...] = (0, 1, 2, 3)
    steps: int = 3000
    batch_size: int = 32
    learning_rate: float = 0.02
    init_std: float = 0.3
    bayes_samples: int = 4000
    phase_points: int = 50
    chunk_steps: int = 200
    checkpoint_every: int = 1000

    def __post_init__(self):
        counts = ("dim", "num_examples", "steps", "batch_size", "phase_points")
        check_at_least(self, 1, *counts, "chunk_steps", "checkpoint_every")
        check_at_least(self, 2, "bayes_samples")
        check_at_least(self, 0, "mean_norm", "noise_var")
        for name in ("examples", "dims"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                value = getattr(self, name)
                raise ValueError(
                    f"{name}: expected at least one value, each at least 1, got {value}"
                )
        for name in ("mean_norms", "noise_vars"):
            if not getattr(self, name) or min(getattr(self, name)) <= 0:
                value = getattr(self, name)
                raise ValueError(
                    f"{name}: expected at least one value, each above 0, got {value}"
                )
        if len(set(self.seeds)) < max(len(self.seeds), 2):
            raise ValueError(
                f"seeds: expected at least two seeds, all distinct, got {self.seeds}"
            )


PRESETS = {
    "cpu": Config(),
    "gpu": Config(seeds=tuple(range(16)), steps=20_000, batch_size=256),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "50 s, 2 cores"}
