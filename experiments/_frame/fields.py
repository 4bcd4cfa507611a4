"""Checks of the fields of a config."""

from collections.abc import Sequence
from typing import Any


def check_at_least(config: Any, least: float, *names: str) -> None:
    """Raises unless every named field of a config is at least ``least``."""
    for name in names:
        value = getattr(config, name)
        if value < least:
            raise ValueError(f"{name}: expected at least {least}, got {value}")


def expect(is_right: bool, name: str, expected: str, value: Any) -> None:
    """Raises for a field of a config, saying what was expected and what was got."""
    if not is_right:
        got = f"{value:g}" if isinstance(value, float) else value
        raise ValueError(f"{name}: expected {expected}, got {got}")


def check_seeds(name: str, seeds: Sequence[int]) -> None:
    """Raises unless there are two seeds or more, and no two the same."""
    if len(set(seeds)) < max(len(seeds), 2):
        raise ValueError(
            f"{name}: expected at least two seeds, all distinct (for standard errors), "
            f"got {seeds}"
        )
