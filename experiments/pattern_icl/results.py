"""Everything that a run measures, in one record."""

import dataclasses

import numpy as np

from experiments._patterns import TrainedEnsemble
from experiments._patterns.gpt2 import TrainedGpt
from experiments.pattern_icl.baselines import MethodComparison
from experiments.pattern_icl.coverage import Cover
from experiments.pattern_icl.gpt2 import GptErrors
from experiments.pattern_icl.lengths import Shares
from experiments.pattern_icl.mechanism import Mechanism
from experiments.pattern_icl.speed import Speed
from experiments.pattern_icl.sums import Sweep


@dataclasses.dataclass(frozen=True)
class PatternResults:
    """All measurements of a run.

    Attributes:
        figures: One-layer models of the mechanism.
        mechanism: Their probes along training.
        sweeps: Sweeps of S_1, by the name of their models.
        inside: Errors against length on unseen tasks.
        outside: The same out of domain.
        covers: Sets of training tasks.
        speed: Iterations against alpha.
        gpt: GPT-2.
        gpt_errors: Its errors.
        comparisons: Classical classifiers beside both.
    """

    figures: TrainedEnsemble
    mechanism: Mechanism
    sweeps: dict[str, Sweep]
    inside: Shares
    outside: Shares
    covers: list[Cover]
    speed: Speed
    gpt: TrainedGpt
    gpt_errors: GptErrors
    comparisons: tuple[MethodComparison, ...]

    def large_angles(self) -> dict[str, np.ndarray]:
        """Mean angles of the large neurons over pi, by part, (seeds, snapshots)."""
        parts = self.mechanism.parts
        which = {
            "feature": (parts.feature_angle, parts.large),
            "label, a > 0": (parts.label_angle, parts.large & parts.positive),
            "label, a < 0": (parts.label_angle, parts.large & ~parts.positive),
        }
        return {
            name: np.asarray(parts.mean(values, kept)) / np.pi
            for name, (values, kept) in which.items()
        }
