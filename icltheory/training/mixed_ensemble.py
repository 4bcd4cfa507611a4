"""Trains several ensembles of different shapes in one program."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Int

from icltheory._pytree import pytree
from icltheory.training.steps import Metrics, Step

__all__ = ["SideBySide", "side_by_side"]


@pytree
class SideBySide:
    """States of ensembles that are stepped together.

    Attributes:
        parts: One state an ensemble, each with an axis of its members.
    """

    parts: tuple[Any, ...]

    @property
    def step(self) -> Int[ArrayLike, "*members"]:
        """Number of steps taken by the members of the first ensemble."""
        return self.parts[0].step

    @property
    def params(self) -> tuple[Any, ...]:
        """Parameters by ensemble."""
        return tuple(part.params for part in self.parts)


def side_by_side(steps: Sequence[Step]) -> Step:
    r"""Combines the steps of ensembles that differ in shape, as in width or layers.

    .. math:: (s_1, \dots, s_G) \mapsto (f_1(s_1), \dots, f_G(s_G))

    Nothing passes between the parts, so that the compiler may run them at once, and a
    chunk of all of them is one dispatch.

    Args:
        steps: One step an ensemble.

    Returns:
        A function from a :class:`SideBySide` state to the next one and its metrics, an
        axis of all members, the first ensemble's first.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory.training import TrainState
        >>> def step(state):
        ...     return state, {"loss": 1.0 * state.seed}
        >>> zero = jnp.zeros(2, jnp.int32)
        >>> state = SideBySide((TrainState(zero, zero + 5, {}, ()),) * 2)
        >>> side_by_side([step, step])(state)[1]["loss"].tolist()
        [5.0, 5.0, 5.0, 5.0]
    """
    if not steps:
        raise ValueError("steps: expected at least one, got none")

    def step(state: SideBySide) -> tuple[SideBySide, Metrics]:
        done = [one(part) for one, part in zip(steps, state.parts, strict=True)]
        names = done[0][1]
        metrics = {
            name: jnp.concatenate([jnp.atleast_1d(found[name]) for _, found in done])
            for name in names
        }
        return SideBySide(tuple(new for new, _ in done)), metrics

    return step
