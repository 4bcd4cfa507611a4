"""Config and presets of the experiment."""

import dataclasses

from experiments._frame.fields import check_at_least
from experiments._patterns import check_sums
from experiments.pattern_layers.train import Layers
from icltheory.patterns import circulant_tasks


@dataclasses.dataclass(frozen=True)
class Config:
    """The trained models, and how much is measured.

    Attributes:
        layers: The models and their training, on the many tasks.
        ring: Shifts of the second, smaller set of training tasks.
        sums: Coefficient sums S_1 of the tests out of domain.
        high: The sum of ``sums`` that others are compared with, at least 1.
        low: The one that is compared with it, below 1.
        draws: Draws of the shifted patterns at each sum.
        prompts: Prompts of a draw; draws differ more than prompts do.
        probe_prompts: Prompts on which attention is measured along training.
        num_examples: Contexts l of a test prompt.
        relevant_fraction: alpha' of a test.
    """

    layers: Layers
    sums: tuple[float, ...]
    draws: int
    prompts: int
    probe_prompts: int
    ring: tuple[int, ...] = (1,)
    high: float = 1.1
    low: float = 0.5
    num_examples: int = 20
    relevant_fraction: float = 0.8

    def __post_init__(self):
        check_at_least(self, 1, "prompts", "probe_prompts", "num_examples")
        check_at_least(self, 2, "draws")
        if len(self.layers.seeds) < 2:
            raise ValueError(
                "layers.seeds: expected at least two seeds (for intervals), "
                f"got {self.layers.seeds}"
            )
        self._check_tasks()
        check_sums(self.layers, self.sums)
        for name in ("high", "low"):
            if getattr(self, name) not in self.sums:
                raise ValueError(
                    f"{name}: expected one of the sums {self.sums}, "
                    f"got {getattr(self, name)}"
                )
        if not self.low < 1 <= self.high:
            raise ValueError(
                f"low, high: expected low < 1 <= high, got {self.low}, {self.high}"
            )
        if not 0 < self.relevant_fraction <= 1:
            raise ValueError(
                "relevant_fraction: expected a number in (0, 1], "
                f"got {self.relevant_fraction}"
            )

    def _check_tasks(self):
        circulant_tasks(self.layers.num_relevant, self.ring)
        shifts, most = self.layers.shifts, self.layers.num_relevant - 1
        if len(shifts) >= most:
            raise ValueError(
                f"layers.shifts: expected fewer than {most}, so that some tasks are "
                f"unseen, got {shifts}"
            )
        if len(self.ring) >= len(shifts):
            raise ValueError(
                f"ring: expected fewer shifts than {shifts}, got {self.ring}"
            )


_SUMS = (1.4, 1.3, 1.1, 1.0, 0.9, 0.7, 0.5, 0.0, -0.5, -1.0)


def _seeds(num: int) -> tuple[int, ...]:
    return tuple(range(num))


PRESETS = {
    "cpu": Config(Layers(seeds=_seeds(3)), _SUMS, 32, 48, 256),
    "gpu": Config(Layers(seeds=_seeds(10)), _SUMS, 256, 256, 2048),
    # The authors' figures run to 1600 epochs; the size of an epoch is not known.
    "paper": Config(
        Layers(seeds=_seeds(10), steps=1600, batch_size=128, record_every=50),
        _SUMS,
        256,
        256,
        2048,
    ),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "1 min, 2 cores"}
