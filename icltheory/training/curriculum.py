"""Curricula by masks, which keep shapes fixed and avoid recompilation."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from icltheory._checks import check_nonnegative_int, check_positive_int

__all__ = ["Curriculum", "Ramp"]


@dataclasses.dataclass(frozen=True)
class Ramp:
    r"""A count that increases in equal steps.

    .. math:: v(t) = \min(\text{end},\ \text{start}
              + \text{increment} \lfloor t / \text{interval} \rfloor)

    Args:
        start: Value at step 0.
        end: Value it stays at.
        increment: Height of a stair; 0 for a count that stays at ``start``.
        interval: Steps on a stair.

    Example:
        >>> [int(Ramp(5, 7, 1, 10)(t)) for t in (0, 9, 10, 25, 99)]
        [5, 5, 6, 7, 7]

    Source: Garg et al. 2022, Appendix A.2.
    """

    start: int
    end: int
    increment: int = 1
    interval: int = 2000

    def __post_init__(self):
        for name in ("start", "end", "interval"):
            check_positive_int(name, getattr(self, name))
        check_nonnegative_int("increment", self.increment)
        if self.start > self.end:
            raise ValueError(
                f"start: expected at most end {self.end}, got {self.start}"
            )

    def __call__(self, step: Int[Array, ""] | int) -> Int[Array, ""]:
        """Returns the value at a step, which may be traced."""
        climbed = self.start + self.increment * (jnp.asarray(step) // self.interval)
        return jnp.minimum(climbed, self.end)


@dataclasses.dataclass(frozen=True)
class Curriculum:
    """Which input dimensions and points of a prompt are used at a step.

    Coordinates beyond ``dims(step)`` are zero in the data, and points beyond
    ``points(step)`` are out of the loss. Both act as masks on arrays of full size.

    Example:
        >>> garg = Curriculum(Ramp(5, 20, 1, 2000), Ramp(11, 41, 2, 2000))
        >>> int(garg.dims(30_000)), int(garg.points(30_000))
        (20, 41)

    Source: Garg et al. 2022, Appendix A.2.
    """

    dims: Ramp
    points: Ramp

    @classmethod
    def none(cls, dim: int, num_points: int) -> "Curriculum":
        """Returns a curriculum that uses everything from the start."""
        return cls(Ramp(dim, dim), Ramp(num_points, num_points))
