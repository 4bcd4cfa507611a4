"""Checks that the bounds share."""

from icltheory._checks import check_positive, check_values


def check_subgaussian_scale(value) -> None:
    """Raises unless R is finite and positive."""
    check_positive("subgaussian_scale", value)


def is_choice(value, name: str) -> bool:
    """Whether an argument that may also be an array or a function is this name."""
    return isinstance(value, str) and value == name


def check_not_negative(name: str, value) -> None:
    """Raises if a concrete value is negative or NaN; infinity is a value."""
    check_values(name, value, lambda entry: entry >= 0, "a value >= 0")
