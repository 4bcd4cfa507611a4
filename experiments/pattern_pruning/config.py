"""Config and presets of the experiment."""

import dataclasses

from experiments._frame.fields import check_at_least
from experiments._patterns import PatternEnsemble, check_sums
from experiments._patterns.gpt2 import GPT_GPU, GPT_PAPER, Gpt

# The slides end at .4, beyond which GPT-2 still works here.
GPT_RATES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98)


@dataclasses.dataclass(frozen=True)
class Config:
    """The models, how they are pruned, and how much is measured.

    Attributes:
        ensemble: The models.
        coefficient_sum: S_1 of the tests out of domain.
        alphas: alpha' of the tests; the first is also that of the test in domain.
        num_examples: Contexts l of a test prompt.
        rates: Fractions R of the neurons that are pruned, ascending from 0.
        random_orders: Random orders over which that curve is a mean.
        ranks: Ranks r of the clipped matrices, ascending; other methods keep as many
            parameters as r (m + n).
        draws: Draws of the shifted patterns in a test.
        prompts: Prompts of a draw.
        bridge_prompts: Prompts of a draw where methods are compared.
        tolerance: Hinge error above the unpruned one that counts as harmless.
        gpt: GPT-2, on the patterns of the first of the models.
        gpt_seeds: Its seeds.
        gpt_rates: Fractions R of the neurons of each block that are pruned.
        gpt_random_orders: Random orders of GPT-2's neurons.
        gpt_draws: Draws of the shifted patterns for GPT-2, for each of its seeds.
        gpt_prompts: Prompts of a draw for GPT-2.
    """

    ensemble: PatternEnsemble
    rates: tuple[float, ...]
    ranks: tuple[int, ...]
    draws: int
    prompts: int
    bridge_prompts: int
    coefficient_sum: float = 1.1
    alphas: tuple[float, ...] = (0.8, 0.6, 1.0)
    num_examples: int = 20
    random_orders: int = 8
    tolerance: float = 0.01
    gpt: Gpt = Gpt(steps=800)
    gpt_seeds: tuple[int, ...] = (0, 1, 2)
    gpt_rates: tuple[float, ...] = GPT_RATES
    gpt_random_orders: int = 4
    gpt_draws: int = 16
    gpt_prompts: int = 64

    def __post_init__(self):
        counts = ("draws", "prompts", "bridge_prompts", "num_examples", "random_orders")
        check_at_least(self, 1, *counts)
        check_at_least(self, 1, "gpt_draws", "gpt_prompts", "gpt_random_orders")
        _check_seeds("ensemble.seeds", self.ensemble.seeds)
        _check_seeds("gpt_seeds", self.gpt_seeds)
        shifts, most = self.ensemble.shifts, self.ensemble.num_relevant - 1
        if len(shifts) >= most:
            raise ValueError(
                f"ensemble.shifts: expected fewer than {most}, so that some tasks are "
                f"unseen, got {shifts}"
            )
        check_sums(self.ensemble, (self.coefficient_sum,))
        if not self.alphas or not all(0 < alpha <= 1 for alpha in self.alphas):
            raise ValueError(
                "alphas: expected at least one value, each in (0, 1], got "
                f"{self.alphas}"
            )
        _check_rates("rates", self.rates)
        _check_rates("gpt_rates", self.gpt_rates)
        most = self.largest_rank
        if list(self.ranks) != sorted(set(self.ranks)) or not self.ranks:
            raise ValueError(f"ranks: expected ascending ranks, got {self.ranks}")
        if not 1 <= self.ranks[0] <= self.ranks[-1] <= most:
            raise ValueError(
                f"ranks: expected r (m + n) <= m n in every matrix, so 1 to {most}, "
                f"got {self.ranks}"
            )
        if not self.tolerance > 0:
            raise ValueError(f"tolerance: expected a number > 0, got {self.tolerance}")

    @property
    def largest_rank(self) -> int:
        """Largest rank whose two factors are no larger than any of the matrices."""
        m = self.ensemble.num_neurons
        D = 2 * (self.ensemble.num_relevant + self.ensemble.num_irrelevant)
        return min(m * D // (m + D), D // 2)

    @property
    def tests(self) -> tuple[str, ...]:
        """Names of the tests: in domain, and out of domain for each alpha'."""
        shifted = (
            f"S_1 = {self.coefficient_sum:g}, alpha' = {a:g}" for a in self.alphas
        )
        return (f"in domain, alpha' = {self.alphas[0]:g}", *shifted)


def _check_seeds(name: str, seeds: tuple[int, ...]) -> None:
    if len(seeds) < 2:
        raise ValueError(
            f"{name}: expected at least two seeds (for intervals), got {seeds}"
        )


def _check_rates(name: str, rates: tuple[float, ...]) -> None:
    rising = list(rates) == sorted(set(rates)) and len(rates) > 1
    if not rising or rates[0] != 0 or rates[-1] >= 1:
        raise ValueError(
            f"{name}: expected 0 and then ascending rates below 1, got {rates}"
        )


def _ensemble(num_seeds: int) -> PatternEnsemble:
    steps = PatternEnsemble().steps
    return PatternEnsemble(record_every=steps, seeds=tuple(range(num_seeds)))


_RATES = tuple(i / 40 for i in range(33))
_RANKS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30)
_LARGE = {"gpt_draws": 64, "gpt_prompts": 128, "gpt_seeds": tuple(range(5))}
PRESETS = {
    "cpu": Config(_ensemble(3), _RATES, _RANKS, 4, 1024, 256),
    "gpu": Config(
        _ensemble(10),
        _RATES,
        tuple(range(1, 31)),
        16,
        2048,
        512,
        gpt=GPT_GPU,
        **_LARGE,
    ),
    "paper": Config(
        _ensemble(10),
        tuple(i / 64 for i in range(58)),
        tuple(range(1, 31)),
        64,
        2048,
        512,
        gpt=GPT_PAPER,
        **_LARGE,
    ),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "1 min, 2 cores"}
