"""Changes of a training setting, by name."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from experiments._frame.fields import check_at_least
from icltheory.training import OptimizerConfig


@dataclasses.dataclass(frozen=True)
class TrainingSetting:
    """Hyperparameters of one training.

    Attributes:
        optimizer: Update rule and its schedule.
        steps: Training steps.
        batch_size: Prompts a step.
        init_std: Standard deviation of the initial weights.
        targets: What answers are compared with: labels, or the posterior means of which
            labels are noisy copies.
        curriculum_interval: Steps on a stair of Garg's curriculum; none at 0.
        precision: Of the model's products; parameters and sums stay float32.
        last_float32: Share of the steps, at the end, in float32.
    """

    optimizer: OptimizerConfig
    steps: int
    batch_size: int
    init_std: float
    targets: Literal["labels", "posterior"] = "labels"
    curriculum_interval: int = 0
    precision: Literal["float32", "bfloat16"] = "float32"
    last_float32: float = 0.0

    def __post_init__(self):
        check_at_least(self, 1, "steps", "batch_size")
        check_at_least(self, 0, "curriculum_interval")
        if not 0 <= self.last_float32 < 1:
            raise ValueError(
                f"last_float32: expected a share in [0, 1), got {self.last_float32}"
            )

    @property
    def prompts(self) -> int:
        """Number of prompts of the whole training."""
        return self.steps * self.batch_size


Change = Callable[[TrainingSetting], TrainingSetting]


def _optimizer(**changed: Any) -> Change:
    def change(setting: TrainingSetting) -> TrainingSetting:
        return dataclasses.replace(
            setting, optimizer=dataclasses.replace(setting.optimizer, **changed)
        )

    return change


def _setting(**changed: Any) -> Change:
    return lambda setting: dataclasses.replace(setting, **changed)


def _rate(factor: float) -> Change:
    def change(setting: TrainingSetting) -> TrainingSetting:
        rule, peaks = setting.optimizer, {}
        for name in ("learning_rate", "adam_learning_rate"):
            peak = getattr(rule, name)
            peaks[name] = None if peak is None else factor * peak
        return _optimizer(**peaks)(setting)

    return change


def shortened(setting: TrainingSetting, part: float) -> TrainingSetting:
    """Shortens a training together with its warm-up and curriculum."""
    rule = setting.optimizer
    return dataclasses.replace(
        setting,
        steps=round(part * setting.steps),
        curriculum_interval=round(part * setting.curriculum_interval),
        optimizer=dataclasses.replace(
            rule, warmup_steps=round(part * rule.warmup_steps)
        ),
    )


def _batch(factor: float) -> Change:
    """Returns a change of the batch size at the same number of prompts."""

    def change(setting: TrainingSetting) -> TrainingSetting:
        size = round(factor * setting.batch_size)
        return dataclasses.replace(shortened(setting, 1 / factor), batch_size=size)

    return change


def _init(factor: float) -> Change:
    return lambda s: dataclasses.replace(s, init_std=factor * s.init_std)


def _curriculum(setting: TrainingSetting) -> TrainingSetting:
    """Adds Garg's curriculum, which ends before a fifth of the steps."""
    return dataclasses.replace(setting, curriculum_interval=max(setting.steps // 75, 1))


def _mean(setting: TrainingSetting) -> TrainingSetting:
    """Adds an average of the weights over the last twentieth of the steps."""
    return _optimizer(average=1 - min(20 / setting.steps, 0.5))(setting)


def _constant_mean(setting: TrainingSetting) -> TrainingSetting:
    return _mean(_optimizer(schedule="constant")(setting))


CHANGES: dict[str, Change] = {
    "adam": _optimizer(name="adam", learning_rate=1e-3, adam_learning_rate=None),
    "muon": _optimizer(
        name="muon", learning_rate=2e-3, warmup_steps=1000, clip_norm=1.0
    ),
    "rate-half": _rate(0.5),
    "rate-double": _rate(2.0),
    "linear": _optimizer(schedule="linear"),
    "trapezoid": _optimizer(schedule="trapezoid", decay_part=0.5),
    "constant": _optimizer(schedule="constant"),
    "constant-mean": _constant_mean,
    "mean": _mean,
    "batch-half": _batch(0.5),
    "batch-double": _batch(2.0),
    "init-half": _init(0.5),
    "init-double": _init(2.0),
    "curriculum": _curriculum,
    "bfloat16": _setting(precision="bfloat16"),
    "float32-last": _setting(precision="bfloat16", last_float32=0.2),
    "posterior": _setting(targets="posterior"),
}
