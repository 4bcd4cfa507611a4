"""Specifies which models train side by side: a grid of seeds and scalars."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory._checks import check_nonnegative_int
from icltheory.training.optimizers import OptimizerConfig
from icltheory.training.steps import Task

__all__ = ["Ensemble", "Member"]

_OF_OPTIMIZER = ("learning_rate", "weight_decay", "clip_norm")


class Member(NamedTuple):
    """One model of an ensemble; ``None`` keeps the shared value.

    Attributes:
        seed: Seed of its start and its data.
        noise_var: Label noise of its task.
        learning_rate: Peak learning rate.
        weight_decay: Decoupled decay.
        clip_norm: Largest norm of its gradient.
    """

    seed: int
    noise_var: float | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    clip_norm: float | None = None

    def alone(
        self, task: Task, optimizer: OptimizerConfig
    ) -> tuple[Task, OptimizerConfig]:
        """Returns task and optimiser to train this model alone.

        Args:
            task: Task of the ensemble.
            optimizer: Its optimiser's record.

        Returns:
            Both with the member's own numbers.
        """
        if self.noise_var is not None:
            if not hasattr(task, "noise_var"):
                raise ValueError(
                    "noise_vars: expected a task with a noise_var, "
                    f"got {type(task).__name__}"
                )
            task = dataclasses.replace(task, noise_var=self.noise_var)  # pyrefly: ignore
        own = {name: getattr(self, name) for name in _OF_OPTIMIZER}
        given = {name: value for name, value in own.items() if value is not None}
        return task, dataclasses.replace(optimizer, **given)


@dataclasses.dataclass(frozen=True)
class Ensemble:
    r"""A grid of models that differ in seeds and scalars but not in shapes.

    .. math:: \text{members} = \text{noise} \times \text{rates} \times \text{decays}
              \times \text{clipping} \times \text{seeds}

    The seeds run fastest. Members of one seed start alike and see the same prompts, up
    to the scale of their noise. An empty tuple leaves a number as the task or the
    optimiser's record has it.

    Args:
        seeds: Seeds of starts and data.
        noise_vars: Variances of the label noise.
        learning_rates: Peak learning rates.
        weight_decays: Decoupled decays.
        clip_norms: Largest norms of the gradient.

    Returns:
        A hashable record, which JSON can hold.

    Example:
        >>> grid = Ensemble(seeds=(0, 1), learning_rates=(1e-3, 1e-2))
        >>> grid.shape, len(grid)
        ((1, 2, 1, 1, 2), 4)
        >>> [(m.learning_rate, m.seed) for m in grid.members()]
        [(0.001, 0), (0.001, 1), (0.01, 0), (0.01, 1)]

    Source: Grids as in Garg et al. 2022, Appendix A.
    """

    seeds: tuple[int, ...] = (0,)
    noise_vars: tuple[float, ...] = ()
    learning_rates: tuple[float, ...] = ()
    weight_decays: tuple[float, ...] = ()
    clip_norms: tuple[float, ...] = ()

    def __post_init__(self):
        if not self.seeds:
            raise ValueError("seeds: expected at least one, got none")
        for seed in self.seeds:
            check_nonnegative_int("seeds", seed)
        for field in dataclasses.fields(self):
            values = getattr(self, field.name)
            if len(set(values)) < len(values):
                raise ValueError(
                    f"{field.name}: expected distinct values, got {values}"
                )
        for name in ("noise_vars", "weight_decays"):
            _check_above_zero(name, getattr(self, name), equal=True)
        for name in ("learning_rates", "clip_norms"):
            _check_above_zero(name, getattr(self, name), equal=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values of noise, rate, decay, clipping and seed."""
        return tuple(len(axis) for axis in self._axes())

    def __len__(self) -> int:
        """Number of members."""
        return int(np.prod(self.shape))

    def members(self) -> tuple[Member, ...]:
        """All members in order."""
        return tuple(
            Member(seed, *others) for *others, seed in itertools.product(*self._axes())
        )

    def _axes(self) -> list[tuple[Any, ...]]:
        scalars = (self.noise_vars, self.learning_rates)
        scalars += (self.weight_decays, self.clip_norms)
        return [*(values or (None,) for values in scalars), self.seeds]


def _check_above_zero(name: str, values: Sequence[float], equal: bool) -> None:
    for value in values:
        if not (value >= 0 if equal else value > 0) or not np.isfinite(value):
            sign = ">=" if equal else ">"
            raise ValueError(f"{name}: expected values {sign} 0, got {value}")
