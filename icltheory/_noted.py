"""Checks of values for the calculators of ``_calculators.py``, until they move."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from icltheory._calculators import given_value, note_validity
from icltheory._checks import (
    _is_covariance,
    _is_finite,
    check_shape,
    concrete,
    refuse_indefinite,
)


def check_values(
    name: str, value: Any, holds: Callable[[Any], Any], expected: str, got: str = ""
) -> None:
    """Raises unless ``holds(value)`` everywhere; for traced values it is recorded.

    Args:
        name: Name of the argument.
        value: A number or an array.
        holds: What has to be true, elementwise, of a NumPy or a JAX array.
        expected: Completes "expected ..." in the error.
        got: Completes "got ..."; the first wrong entry if not given.
    """
    known = _noted(value, lambda: holds(value))
    if known is None:
        return
    right = holds(known)
    if not isinstance(right, jax.core.Tracer) and not np.all(right):
        first = np.asarray(known[~np.broadcast_to(right, known.shape)]).flat[0]
        raise ValueError(f"{name}: expected {expected}, got {got or first}")


def _noted(value, check) -> np.ndarray | None:
    """Returns the concrete value; for a traced one records the check."""
    known = concrete(value)
    if known is None:
        note_validity(check)
        known = given_value(value)
    return known


def check_finite(name: str, value: Any) -> None:
    """Raises if ``value`` has an entry that is not finite."""
    check_values(name, value, _is_finite, "finite entries", "NaN or infinity")


def check_nonnegative(name: str, value: Any) -> None:
    """Raises if ``value`` has a negative entry or one that is not finite."""
    check_finite(name, value)
    check_values(name, value, lambda entry: entry >= 0, "a value >= 0")


def check_positive(name: str, value: Any) -> None:
    """Raises if ``value`` has an entry that is not finite and positive."""

    def holds(entry):
        return _is_finite(entry) & (entry > 0)

    check_values(name, value, holds, "a finite value > 0")


def check_at_least(name: str, value: Any, least: Any) -> None:
    """Raises if ``value`` has an entry below ``least`` or NaN; infinity is a value."""
    check_values(name, value, lambda entry: entry >= least, f"a value >= {least}")


def check_scalar(name: str, value: Any) -> None:
    """Raises unless ``value`` is one number, finite and not negative."""
    check_shape(name, value, ())
    check_nonnegative(name, value)


def check_unit(name: str, value: Any) -> None:
    """Raises if ``value`` has an entry outside of [0, 1]."""

    def holds(entry):
        return (entry >= 0) & (entry <= 1)

    check_values(name, value, holds, "a value in [0, 1]")


def check_range(name: str, value: Any, low: Any, high: Any) -> None:
    """Raises if ``value`` has an entry outside of [low, high]."""

    def holds(entry):
        return (entry >= low) & (entry <= high)

    check_values(name, value, holds, f"{low} <= {name} <= {high}")


def check_count(name: str, value: Any, least: int = 0) -> None:
    """Raises unless ``value`` is one whole number that is at least ``least``."""
    check_shape(name, value, ())

    def holds(entry):
        return (entry >= least) & (entry == entry // 1)

    check_values(name, value, holds, f"a whole number >= {least}")


def check_covariance(name: str, matrix: Any, dim: int) -> None:
    """Raises unless ``matrix`` is symmetric positive semi-definite, (dim, dim)."""
    check_shape(name, matrix, (dim, dim))
    check_finite(name, matrix)
    known = _noted(matrix, lambda: _is_covariance(jax.lax.stop_gradient(matrix)))
    if known is not None:
        refuse_indefinite(name, known.astype(np.float64))
