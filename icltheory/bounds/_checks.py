"""Checks that the bounds share."""

import numpy as np

from icltheory._checks import concrete


def check_subgaussian_scale(value) -> None:
    """Raises unless R is finite and positive."""
    check_positive("subgaussian_scale", value)


def check_positive(name: str, value) -> None:
    """Raises if a concrete value has an entry that is not finite and positive."""
    known = concrete(value)
    if known is not None and not (np.all(np.isfinite(known)) and np.all(known > 0)):
        raise ValueError(f"{name}: expected a finite value > 0, got {known}")


def is_choice(value, name: str) -> bool:
    """Whether an argument that may also be an array or a function is this name."""
    return isinstance(value, str) and value == name


def check_not_negative(name: str, value) -> None:
    """Raises if a concrete value is negative or NaN; infinity is a value."""
    known = concrete(value)
    if known is not None and not np.all(known >= 0):
        raise ValueError(f"{name}: expected a value >= 0, got {known}")
