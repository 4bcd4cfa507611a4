"""Argument checks. Every message says what was expected and what came.

Shapes are known while tracing and are always checked. Values are checked when they
are concrete; inside ``jit``, ``vmap`` or ``grad`` a tracer passes unchecked.
"""

from typing import Any

import jax
import numpy as np


def check_shape(name: str, array: Any, expected: tuple[int | str, ...]) -> None:
    """Raises unless ``array`` has the expected shape; letters match any size."""
    shape = tuple(np.shape(array))
    sizes: dict[str, int] = {}
    ok = len(shape) == len(expected)
    for got, want in zip(shape, expected, strict=False):
        ok = ok and got == (
            sizes.setdefault(want, got) if isinstance(want, str) else want
        )
    if not ok:
        wanted = ", ".join(map(str, expected)) + ("," if len(expected) == 1 else "")
        raise ValueError(f"{name}: expected shape ({wanted}), got {shape}")


def concrete(value: Any) -> np.ndarray | None:
    """Returns ``value`` as a NumPy array, or ``None`` while it is being traced."""
    return None if isinstance(value, jax.core.Tracer) else np.asarray(value)


def check_positive_int(name: str, value: Any) -> None:
    """Raises unless ``value`` is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name}: expected a positive integer, got {value!r}")


def check_finite(name: str, value: Any) -> None:
    """Raises if a concrete ``value`` has an entry that is not finite."""
    known = concrete(value)
    if known is not None and not np.all(np.isfinite(known)):
        raise ValueError(f"{name}: expected finite entries, got NaN or infinity")


def check_nonnegative(name: str, value: Any) -> None:
    """Raises if a concrete ``value`` has a negative entry or one that is not finite."""
    check_finite(name, value)
    known = concrete(value)
    if known is not None and np.any(known < 0):
        raise ValueError(f"{name}: expected a value >= 0, got {known.min()}")


def check_covariance(name: str, matrix: Any, dim: int) -> None:
    """Raises unless ``matrix`` is symmetric positive semi-definite, (dim, dim)."""
    check_shape(name, matrix, (dim, dim))
    check_finite(name, matrix)
    known = concrete(matrix)
    if known is None:
        return
    known = known.astype(np.float64)
    tolerance = 1e-6 * float(np.abs(known).max(initial=0.0))
    if np.abs(known - known.T).max(initial=0.0) > tolerance:
        raise ValueError(f"{name}: expected a symmetric matrix, got an asymmetric one")
    smallest = float(np.linalg.eigvalsh(known).min(initial=0.0))
    if smallest < -tolerance:
        raise ValueError(
            f"{name}: expected a positive semi-definite matrix, "
            f"got smallest eigenvalue {smallest:.3g}"
        )


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raises unless ``value`` is one of ``choices``."""
    if value not in choices:
        wanted = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}: expected one of {wanted}, got {value!r}")


def check_nonnegative_int(name: str, value: Any) -> None:
    """Raises unless ``value`` is an integer that is at least 0."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise ValueError(f"{name}: expected an integer >= 0, got {value!r}")


def check_open_unit(name: str, value: Any) -> None:
    """Raises unless a number lies strictly between 0 and 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name}: expected a number between 0 and 1, got {value}")
