"""Config and presets of the experiment."""

import dataclasses

from experiments._frame.fields import check_at_least
from experiments._patterns import PatternEnsemble, check_sums
from experiments._patterns.gpt2 import GPT_GPU, GPT_PAPER, Gpt

SUMS = (1.4, 1.3, 1.1, 1.0, 0.9, 0.7, 0.5, 0.0, -0.5, -1.0, -1.4)


@dataclasses.dataclass(frozen=True)
class Config:
    """The trained models, and how much is measured.

    Attributes:
        figures: One-layer models of the mechanism and of the error against length.
        shifted: One-layer models of the sweep of S_1 and of the coverage, at a beta
            where the closed form has its kink near S_1 = 1.
        gpt: GPT-2 on the patterns of the first seed of ``figures``.
        gpt_seeds: Its seeds.
        prompts: Fresh prompts a seed and a setting.
        sums: Coefficient sums S_1.
        draws: Draws of the out-of-domain patterns.
        reference_sum: S_1 where something else is varied.
        gpt_sums: Coefficient sums S_1 of GPT-2's tests.
        gpt_prompts: Prompts a seed, a setting and a draw of GPT-2's tests.
        lengths: Numbers of contexts, ascending.
        fractions: Relevant fractions alpha' of the tests.
        covers: Numbers of shifts of training tasks; each adds M1 tasks.
        alphas: Relevant fractions of training, against which iterations are counted;
            all else is as in ``figures``.
        alpha_length: Contexts of these trainings.
        alpha_steps: Their steps.
        alpha_every: Steps between two looks at them.
        target: Hinge loss on unseen tasks that counts as learned.
        baseline_lengths: Contexts that the classical classifiers see.
        baseline_fractions: Their alpha'.
        baseline_prompts: Prompts for each of them.
    """

    figures: PatternEnsemble = PatternEnsemble()
    shifted: PatternEnsemble = PatternEnsemble(scale=3.0, step_size=1.0)
    gpt: Gpt = Gpt()
    gpt_seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    prompts: int = 2048
    sums: tuple[float, ...] = SUMS
    draws: int = 4
    reference_sum: float = 1.1
    gpt_sums: tuple[float, ...] = (1.3, 1.1, 1.0, 0.9, 0.7, 0.5)
    gpt_prompts: int = 256
    lengths: tuple[int, ...] = (2, 4, 8, 12, 20)
    fractions: tuple[float, ...] = (0.6, 0.8, 1.0)
    covers: tuple[int, ...] = (1, 2, 3, 5)
    alphas: tuple[float, ...] = (1.0, 0.8, 0.6, 0.4, 0.25)
    alpha_length: int = 40
    alpha_steps: int = 480
    alpha_every: int = 10
    target: float = 0.1
    baseline_lengths: tuple[int, ...] = (6, 8, 10, 12, 16, 20)
    baseline_fractions: tuple[float, ...] = (0.8, 0.6)
    baseline_prompts: int = 450

    def __post_init__(self):
        check_at_least(self, 2, "prompts", "draws", "gpt_prompts", "baseline_prompts")
        check_at_least(self, 1, "alpha_length", "alpha_steps", "alpha_every")
        for name in ("lengths", "baseline_lengths", "covers"):
            _check_ascending(name, getattr(self, name))
        for name in ("fractions", "alphas", "baseline_fractions"):
            _check_fractions(name, getattr(self, name))
        for ensemble in (self.figures, self.shifted):
            check_sums(ensemble, (*self.sums, *self.gpt_sums, self.reference_sum))
        if self.covers[-1] >= self.shifted.num_relevant:
            raise ValueError(
                f"covers: expected at most M1 - 1 = {self.shifted.num_relevant - 1} "
                f"shifts, got {self.covers[-1]}"
            )
        if self.alpha_steps % self.alpha_every:
            raise ValueError(
                f"alpha_steps: expected a multiple of alpha_every {self.alpha_every}, "
                f"got {self.alpha_steps}"
            )
        longest = self.figures.num_examples
        if max(self.lengths[-1], self.baseline_lengths[-1]) > longest:
            raise ValueError(
                f"lengths, baseline_lengths: expected at most the {longest} contexts "
                f"of training, got {self.lengths[-1]} and {self.baseline_lengths[-1]}"
            )
        if len(self.alphas) < 2 or len(set(self.alphas)) < len(self.alphas):
            raise ValueError(f"alphas: expected two or more, got {self.alphas}")
        if not self.gpt_seeds:
            raise ValueError("gpt_seeds: expected at least one, got none")
        if not 0 < self.target < 1:
            raise ValueError(f"target: expected a number in (0, 1), got {self.target}")


def _check_ascending(name: str, values: tuple[int, ...]) -> None:
    if not values or list(values) != sorted(set(values)) or values[0] < 1:
        raise ValueError(
            f"{name}: expected whole numbers >= 1, ascending, got {values}"
        )


def _check_fractions(name: str, values: tuple[float, ...]) -> None:
    if not values or not all(0 < value <= 1 for value in values):
        raise ValueError(f"{name}: expected numbers in (0, 1], got {values}")


_SEEDS = tuple(range(10))
_LARGE = {
    "figures": PatternEnsemble(seeds=_SEEDS),
    "shifted": PatternEnsemble(scale=3.0, step_size=1.0, seeds=_SEEDS),
    "prompts": 16_384,
    "draws": 8,
    "gpt_prompts": 4096,
}
PRESETS = {
    "cpu": Config(),
    "gpu": Config(
        **_LARGE,
        gpt=GPT_GPU,
        baseline_prompts=4000,
    ),
    "paper": Config(
        **_LARGE,
        gpt=GPT_PAPER,
        baseline_prompts=20_000,
    ),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "2 min, 2 cores"}
