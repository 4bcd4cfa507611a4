"""Prompts and token matrices in the form that these models read."""

from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Float

from icltheory._checks import check_choice
from icltheory._typing import Array

MASKS = ("demos", "none")

Examples = Float[ArrayLike, "*_B _M _d"]
Labels = Float[ArrayLike, "*_B _M"]
Queries = Float[ArrayLike, "*_B _d"]
Tokens = Float[ArrayLike, "*_B _T _n"]


def read_prompt(
    X: Examples, y: Labels, x_query: Queries, mask: str, model: Any
) -> tuple[Array, Array, Array]:
    """Converts a prompt to arrays of one dtype and checks its dimension."""
    check_choice("mask", mask, MASKS)
    X, y = read_examples(X, y, model)
    wanted = (*X.shape[:-2], model.dim)
    if jnp.shape(x_query) != wanted:
        raise ValueError(f"x_query: expected shape {wanted}, got {jnp.shape(x_query)}")
    return X, y, jnp.asarray(x_query, X.dtype)


def read_examples(X: Examples, y: Labels, model: Any) -> tuple[Array, Array]:
    """Converts examples to arrays of one dtype; raises if there are none."""
    shape, dim = jnp.shape(X), model.dim
    if len(shape) < 2 or shape[-1] != dim or shape[-2] < 1:
        raise ValueError(f"X: expected shape (..., M, {dim}) with M >= 1, got {shape}")
    if jnp.shape(y) != shape[:-1]:
        raise ValueError(f"y: expected shape {shape[:-1]}, got {jnp.shape(y)}")
    dtype = jnp.result_type(model.dtype, jnp.asarray(X).dtype, jnp.asarray(y).dtype)
    return jnp.asarray(X, dtype), jnp.asarray(y, dtype)


def read_tokens(E: Tokens, dim: int, mask: str) -> Array:
    """Converts a token matrix to an array; raises without an example and a query."""
    check_choice("mask", mask, MASKS)
    shape = jnp.shape(E)
    if len(shape) < 2 or shape[-1] != dim + 1 or shape[-2] < 2:
        raise ValueError(
            f"E: expected shape (..., M + 1, {dim + 1}) with M >= 1, got {shape}"
        )
    return jnp.asarray(E)


def token_matrix(X: Array, y: Array, x_query: Array) -> Array:
    """Tokens as rows, [x_i, y_i] and last [x_query, 0]."""
    examples = jnp.concatenate([X, y[..., None]], axis=-1)
    query = jnp.concatenate([x_query, jnp.zeros_like(x_query[..., :1])], axis=-1)
    return jnp.concatenate([examples, query[..., None, :]], axis=-2)
