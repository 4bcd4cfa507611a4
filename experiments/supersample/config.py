"""Config and presets of the experiment."""

import dataclasses

from experiments._frame.fields import check_at_least
from experiments._patterns import PatternEnsemble
from experiments._trained import GPT2_CPU, Recipe, linear_recipe

# Subject of a task's sentences, and whether its label words have a meaning.
TASKS = {
    "topic": ("topic", True),
    "nonce_topic": ("topic", False),
    "sentiment": ("sentiment", True),
    "nonce": ("sentiment", False),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """The learners, and how many prompts they are evaluated on.

    Attributes:
        gpt2: Recipe of the GPT-2; its snapshots are the points along training.
        linear: Recipe of the linear attention stack.
        linear_layers: Numbers of layers of the linear stacks.
        patterns: Recipe of the pattern transformer, of which the first seed is used.
        noise_var: Label noise of gradient descent, ridge regression and the stacks.
        descent_steps: Numbers of steps of gradient descent.
        shots: Numbers of pairs N for the GPT-2, ascending.
        noises: Variances of label noise for the GPT-2.
        ranks: Ranks kept of all matrices of the GPT-2, the width first.
        pattern_steps: Training steps after which the pattern transformer is evaluated.
        pattern_shots: Number of pairs of its prompts.
        language_tasks: Tasks of the small language model.
        language_shots: Numbers of pairs of its prompts.
        checkpoint: The small language model, as a folder of the repository.
        clip: The squared error at which the loss is 1.
        levels: Values to which losses are rounded.
        prompts: Prompts for the bounds, and as many others for the error.
        language_prompts: The same for the language model.
        theorem2_prompts: Prompts for Theorem 2.
        seed: Seed of the evaluation.
        confidence: Confidence of the limits, and level of the intervals.
    """

    gpt2: Recipe
    linear: Recipe
    linear_layers: tuple[int, ...] = (1, 2)
    patterns: PatternEnsemble = PatternEnsemble(seeds=(0,))
    noise_var: float = 0.25
    descent_steps: tuple[int, ...] = (1, 2, 4, 8, 16)
    shots: tuple[int, ...] = (2, 4, 6, 8, 10)
    noises: tuple[float, ...] = (0.0, 0.25, 1.0, 4.0)
    ranks: tuple[int, ...] = (64, 48, 32, 24, 16, 8, 4)
    pattern_steps: tuple[int, ...] = (0, 80, 160, 240, 320)
    pattern_shots: int = 20
    language_tasks: tuple[str, ...] = ("topic", "nonce_topic")
    language_shots: tuple[int, ...] = (2, 4, 8)
    checkpoint: str = "experiments/small_lm/checkpoint"
    clip: float = 4.0
    levels: int = 16
    prompts: int = 16_384
    language_prompts: int = 512
    theorem2_prompts: int = 256
    seed: int = 0
    confidence: float = 0.95

    def __post_init__(self):
        check_at_least(self, 2, "prompts", "language_prompts", "levels")
        check_at_least(self, 2, "theorem2_prompts", "pattern_shots")
        for name, kind in (("gpt2", "gpt2"), ("linear", "linear")):
            recipe = getattr(self, name)
            if recipe.model != kind:
                raise ValueError(f"{name}.model: expected {kind}, got {recipe.model}")
            if len(recipe.seeds) != 1:
                raise ValueError(f"{name}.seeds: expected one seed, got {recipe.seeds}")
        for name in ("shots", "language_shots", "descent_steps", "linear_layers"):
            values = getattr(self, name)
            if not values or list(values) != sorted(set(values)) or values[0] < 1:
                raise ValueError(
                    f"{name}: expected whole numbers >= 1, ascending, got {values}"
                )
        unknown = sorted(set(self.language_tasks) - set(TASKS))
        if unknown:
            raise ValueError(
                f"language_tasks: expected some of {', '.join(TASKS)}, got {unknown[0]}"
            )
        if self.shots[-1] >= self.gpt2.num_points:
            raise ValueError(
                f"shots: expected at most {self.gpt2.num_points - 1} examples of "
                f"training, got {self.shots[-1]}"
            )
        if not self.ranks or self.ranks[0] != self.gpt2.width or min(self.ranks) < 1:
            raise ValueError(
                f"ranks: expected ranks >= 1, first the width {self.gpt2.width}, got "
                f"{self.ranks}"
            )
        every, last = self.patterns.record_every, self.patterns.steps
        if any(step % every or not 0 <= step <= last for step in self.pattern_steps):
            raise ValueError(
                f"pattern_steps: expected multiples of {every} up to {last}, got "
                f"{self.pattern_steps}"
            )
        if not self.noises or min(self.noises) < 0:
            raise ValueError(f"noises: expected variances >= 0, got {self.noises}")
        if not self.noise_var >= 0 or not self.clip > 0:
            raise ValueError(
                "noise_var, clip: expected a variance >= 0 and a number > 0, got "
                f"{self.noise_var} and {self.clip}"
            )
        if not 0 < self.confidence < 1:
            raise ValueError(
                f"confidence: expected a number in (0, 1), got {self.confidence}"
            )


_GPT2 = dataclasses.replace(
    GPT2_CPU, snapshots=(0, 100, 300, 600, 1000, 2000, 3500), seeds=(0,)
)
_LINEAR = dataclasses.replace(linear_recipe(1, steps=1000), noise_var=0.25, seeds=(0,))
PRESETS = {"cpu": Config(gpt2=_GPT2, linear=_LINEAR)}
# Measured beside other programs; ten minutes of processor time.
TIMES = {"cpu": "8 to 10 min, 2 cores"}
