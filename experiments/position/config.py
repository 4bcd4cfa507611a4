"""Config and presets of the experiment."""

import dataclasses

from experiments._frame.fields import check_at_least
from experiments._trained import GPT2_CPU, Recipe


@dataclasses.dataclass(frozen=True)
class Config:
    """The models, and how many prompts they are evaluated on.

    Attributes:
        gpt2: Recipe of the transformer that is trained on regression; the linear stacks
            read prompts of its size.
        layers: Numbers of layers of the linear stacks.
        step_size: Step size of each of their layers.
        prompts: Prompts of regression.
        long_prompt: Examples of the prompts whose label weights stand beside their
            limit, a multiple of 20.
        seed: Seed of the evaluation.
        level: Level of the intervals, and 1 minus that of the tests.
    """

    gpt2: Recipe
    layers: tuple[int, ...] = (1, 2, 4, 8)
    step_size: float = 0.5
    prompts: int = 4_096
    long_prompt: int = 1_000
    seed: int = 0
    level: float = 0.95

    def __post_init__(self):
        if self.gpt2.model != "gpt2":
            raise ValueError(f"gpt2.model: expected gpt2, got {self.gpt2.model}")
        if self.gpt2.num_points < 4:
            points = self.gpt2.num_points
            raise ValueError(f"gpt2.num_points: expected at least 4, got {points}")
        check_at_least(self, 2, "prompts")
        if self.long_prompt < 20 or self.long_prompt % 20:
            raise ValueError(
                f"long_prompt: expected a multiple of 20, got {self.long_prompt}"
            )
        if not self.layers or min(self.layers) < 1:
            raise ValueError(f"layers: expected numbers >= 1, got {self.layers}")
        if not 0 < self.step_size < 2:
            raise ValueError(
                f"step_size: expected a number in (0, 2), got {self.step_size:g}"
            )
        if not 0 < self.level < 1:
            raise ValueError(f"level: expected a number in (0, 1), got {self.level:g}")


PRESETS = {"cpu": Config(gpt2=dataclasses.replace(GPT2_CPU, seeds=(0, 1, 2)))}
TIMES = {"cpu": "3 to 4 min, 2 cores"}
