"""The conditions of a theorem, each with the numbers on its two sides."""

import functools
import operator
from typing import Any

import equinox as eqx

from icltheory._core import Record


class Condition(Record):
    """One inequality of a theorem, with the numbers on its two sides.

    Example:
        >>> from icltheory.patterns import Condition
        >>> print(Condition("length", "l alpha >= C", 16.0, 2.0, True))
        length: l alpha >= C (16 against 2): holds
    """

    name: str = eqx.field(static=True)
    inequality: str = eqx.field(static=True)
    left: Any
    right: Any
    holds: Any

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "fails"
        sides = f"({float(self.left):g} against {float(self.right):g})"
        return f"{self.name}: {self.inequality} {sides}: {verdict}"


class Conditions(Record):
    """The conditions of a theorem; with ``jax.vmap`` those of many settings.

    Example:
        >>> from icltheory.patterns import Condition, Conditions
        >>> got = Conditions((Condition("length", "l alpha >= C", 1.0, 2.0, False),))
        >>> got.holds, got.failing
        (False, ('length',))
    """

    each: tuple[Condition, ...]

    @property
    def holds(self) -> Any:
        """Whether all conditions hold."""
        return functools.reduce(operator.and_, (one.holds for one in self.each), True)

    @property
    def failing(self) -> tuple[str, ...]:
        """Names of the conditions that fail, for a single setting."""
        return tuple(one.name for one in self.each if not one.holds)

    def __getitem__(self, name: str) -> Condition:
        return {one.name: one for one in self.each}[name]

    def __str__(self) -> str:
        return "\n".join(map(str, self.each))


def at_least(name: str, inequality: str, left: Any, right: Any) -> Condition:
    """Builds the condition left >= right."""
    return Condition(name, inequality, left, right, left >= right)


def at_most(name: str, inequality: str, left: Any, right: Any) -> Condition:
    """Builds the condition left <= right."""
    return Condition(name, inequality, left, right, left <= right)
