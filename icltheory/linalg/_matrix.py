"""Checks and precision shared by all decompositions."""

from jax.typing import ArrayLike

from icltheory._core import widened
from icltheory._typing import Array


def as_matrix(W: ArrayLike) -> Array:
    """Checks for a non-empty matrix, and converts half precision to float32."""
    matrix = widened(W)
    if matrix.ndim < 2:
        raise ValueError(f"W: expected shape (..., m, n), got {matrix.shape}")
    if 0 in matrix.shape[-2:]:
        raise ValueError(f"W: expected at least one entry, got shape {matrix.shape}")
    return matrix
