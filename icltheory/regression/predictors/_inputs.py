"""Inputs of predictors: one prompt, or a batch with one leading axis."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from icltheory._checks import check_shape
from icltheory._typing import Array
from icltheory.regression._linalg import as_floats

# Sizes are checked below, where error messages name the argument.
Inputs = Float[ArrayLike, "... _N _d"]
Labels = Float[ArrayLike, "... _N"]
Query = Float[ArrayLike, "... _d"]
Prediction = Float[Array, "*B"]
Predictions = Float[Array, "*B N"]


def one_or_batch(core: Callable[..., Array], *arrays: Array) -> Array:
    """Applies a function of one prompt to a prompt, or to each prompt of a batch."""
    return jax.vmap(core)(*arrays) if arrays[0].ndim == 3 else core(*arrays)


def read_prompt(X: Any, y: Any, x_query: Any) -> list[Array]:
    """Checks a prompt and converts it to one dtype, for predictors of one query."""
    batch, dim = _check_examples(X, y)
    check_shape("x_query", x_query, (*batch, dim))
    return as_floats(X, y, x_query)


def read_prefixes(X: Any, y: Any, X_query: Any) -> list[Array]:
    """Checks a prompt and converts it to one dtype, for predictors of every prefix."""
    _check_examples(X, y)
    if X_query is None:
        X, y = as_floats(X, y)
        return [X, y, X]
    check_shape("X_query", X_query, np.shape(X))
    return as_floats(X, y, X_query)


def before(num_points: int) -> Array:
    """Mask (P, P): entry (k, i) is true when example i is among the first k."""
    return jnp.tril(jnp.ones((num_points, num_points), bool), -1)


def shift_down(rows: Array, axis: int = 0) -> Array:
    """Shifts rows down by one, which makes an inclusive sum exclusive."""
    if not rows.shape[axis]:
        return rows
    kept = jax.lax.slice_in_dim(rows, 0, rows.shape[axis] - 1, axis=axis)
    zeros = jnp.zeros_like(jax.lax.slice_in_dim(rows, 0, 1, axis=axis))
    return jnp.concatenate([zeros, kept], axis=axis)


def _check_examples(X: Any, y: Any) -> tuple[tuple[int, ...], int]:
    shape = tuple(np.shape(X))
    if len(shape) not in (2, 3):
        raise ValueError(f"X: expected shape (N, d) or (B, N, d), got {shape}")
    check_shape("y", y, shape[:-1])
    return shape[:-2], shape[-1]
