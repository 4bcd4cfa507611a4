"""Checks of the fields of a config."""

from typing import Any


def check_at_least(config: Any, least: float, *names: str) -> None:
    """Raises unless every named field of a config is at least ``least``."""
    for name in names:
        value = getattr(config, name)
        if value < least:
            raise ValueError(f"{name}: expected at least {least}, got {value}")
