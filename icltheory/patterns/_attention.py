"""Shared by both pattern models: attention to contexts, checks, and random weights."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_shape
from icltheory._typing import Array, Float, PRNGKey
from icltheory.layered import MatrixSpec
from icltheory.patterns.prompts import PatternPrompt

GROUPS = {"W_Q": "attn", "W_K": "attn", "W_V": "attn"}


def tokens(inputs: Any) -> tuple[Array, Array]:
    """Returns contexts and query of a prompt, or of a pair ``(P, P_query)``."""
    if isinstance(inputs, PatternPrompt):
        return inputs.P, inputs.P_query
    P, P_query = map(jnp.asarray, inputs)
    check_shape("P_query", P_query, P.shape[:-2] + P.shape[-1:])
    return P, P_query


def check_width(params: Any, width: int, whose: str) -> None:
    """Raises unless the weights have this token width."""
    got = np.shape(params["W_Q"])[-1]
    if got != width:
        expected = f"expected width {width}, as of the {whose}"
        raise ValueError(f"params: {expected}, got {got}")


def query_weights(
    W_K: Float[Array, "k D"],
    W_Q: Float[Array, "k D"],
    P: Float[Array, "*B l D"],
    P_query: Float[Array, "*B D"],
) -> Float[Array, "*B l"]:
    """Softmax over the contexts of (W_K p_i)' W_Q p_query, without the query as key.

    The key matrix is applied to the query's side, once instead of for every context.
    """
    pulled = (P_query @ W_Q.T) @ W_K
    return jax.nn.softmax(jnp.einsum("...ld,...d->...l", P, pulled), axis=-1)


def layer_specs(names: dict[str, str], *index: int) -> tuple[MatrixSpec, ...]:
    """Matrix specs of the named matrices, at an index into their leading axes."""
    return tuple(MatrixSpec(name, g, (name, *index)) for name, g in names.items())


def gaussian(key: PRNGKey, shape: tuple[int, ...], scale: Any, dtype: Any) -> Array:
    """Draws independent entries from N(0, scale^2)."""
    return jnp.asarray(scale, dtype) * jax.random.normal(key, shape, dtype)
