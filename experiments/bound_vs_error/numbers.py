"""Numbers as JSON keeps them: infinity is a word, so that every reader takes it."""

import math


def finite_or_word(value: float) -> float | str:
    """A number, or ``"inf"`` or ``"nan"``."""
    return value if math.isfinite(value) else str(value)


def number(stored: float | str) -> float:
    """The number that was stored."""
    return float(stored)
