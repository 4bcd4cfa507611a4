"""Shared by all attention layers: input checks, conversion and the residual."""

from typing import NamedTuple

import jax.numpy as jnp

from icltheory._checks import check_choice, check_shape
from icltheory._typing import Array, Float
from icltheory.attention.masks import MASKS


class LayerOutput(NamedTuple):
    """Tokens after one layer: the demonstrations and the query.

    Source: Yao et al. (2024), equation (1).
    """

    H: Float[Array, "N n"]
    h_query: Float[Array, " n"]


def as_tokens(H, h_query, width: int) -> tuple[Array, Array]:
    """Checks tokens and converts them to a common floating-point dtype."""
    H, h_query = jnp.asarray(H), jnp.asarray(h_query)
    check_shape("H", H, ("N", width))
    check_shape("h_query", h_query, (width,))
    # In an integer dtype, a scale of 1 / N would be cast to 0.
    dtype = jnp.result_type(H, h_query, 1.0)
    return H.astype(dtype), h_query.astype(dtype)


def as_projections(W_V, W_K, W_Q) -> tuple[Array, Array, Array]:
    """Checks that the three matrices are square and of one shape, and converts them."""
    check_shape("W_V", W_V, ("n", "n"))
    check_shape("W_K", W_K, jnp.shape(W_V))
    check_shape("W_Q", W_Q, jnp.shape(W_V))
    return jnp.asarray(W_V), jnp.asarray(W_K), jnp.asarray(W_Q)


def as_queries(W_K, W_Q, H, h_query, mask: str) -> tuple[Array, Array, Array, Array]:
    """Checks the arguments of attention weights, and converts them."""
    check_shape("W_K", W_K, ("d", "n"))
    check_shape("W_Q", W_Q, jnp.shape(W_K))
    check_choice("mask", mask, MASKS)
    H, h_query = as_tokens(H, h_query, jnp.shape(W_K)[1])
    return jnp.asarray(W_K), jnp.asarray(W_Q), H, stacked(H, h_query)


def as_mlp(W_V, W_K, W_Q, W_in, W_out) -> tuple[Array, Array, Array, Array, Array]:
    """Checks that the five matrices of Appendix B.3 fit together, and converts them."""
    check_shape("W_V", W_V, ("dim1", "n"))
    dim1, n = jnp.shape(W_V)
    check_shape("W_K", W_K, (dim1, n))
    check_shape("W_Q", W_Q, (dim1, n))
    check_shape("W_in", W_in, ("dim2", dim1))
    check_shape("W_out", W_out, (n, jnp.shape(W_in)[0]))
    V, K, Q, I, O = map(jnp.asarray, (W_V, W_K, W_Q, W_in, W_out))
    return V, K, Q, I, O


def stacked(H: Array, h_query: Array) -> Array:
    """Returns all tokens as rows, the query last."""
    return jnp.concatenate([H, h_query[None]])


def add_residual(H: Array, h_query: Array, sums, scale) -> LayerOutput:
    """Adds the scaled attention sums to the tokens."""
    factor = jnp.asarray(scale, H.dtype)
    return LayerOutput(H + factor * sums[0], h_query + factor * sums[1])
