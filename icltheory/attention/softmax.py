"""Softmax attention with residual, equations (1) and (2)."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import positive, scalar
from icltheory._core import calculator
from icltheory._typing import Array, Float, Mask
from icltheory.attention._layer import (
    LayerOutput,
    add_residual,
    as_projections,
    as_queries,
    as_tokens,
    stacked,
)
from icltheory.attention.masks import attended_keys, normalized_keys


@calculator(static=("mask",), d_scale=scalar & positive, scale=scalar)
def softmax_attention(
    W_V: Float[ArrayLike, "_n _n"],
    W_K: Float[ArrayLike, "_n _n"],
    W_Q: Float[ArrayLike, "_n _n"],
    H: Float[ArrayLike, "_N _n"],
    h_query: Float[ArrayLike, "_n"],
    *,
    d_scale: Real[ArrayLike, ""],
    mask: Mask = "demos",
    scale: Real[ArrayLike, ""] = 1.0,
) -> LayerOutput:
    r"""Softmax attention with residual, equations (1) and (2).

    .. math::
        \hat h_i = h_i + c \sum_{j \in A(i)} a_{ij}\, W_V h_j , \qquad
        a_{ij} = \frac{\exp\big((W_K h_j)^\top W_Q h_i / \sqrt{d_{scale}}\big)}
                      {\sum_{k \in Z(i)}
                       \exp\big((W_K h_k)^\top W_Q h_i / \sqrt{d_{scale}}\big)} ,

    with c = ``scale``, A(i) the attended keys and Z(i) the keys of the normaliser. The
    papers' M stands outside the softmax, so with ``"demos"`` Z(i) holds all N + 1 keys:
    the weights on the demonstrations sum to less than 1, the query key keeps the rest,
    and through the normaliser the demonstrations do feel the query. Cost
    O(N n^2 + N^2 n).

    Args:
        d_scale: The number under the root; 1 leaves the logits as they are.

    Example:
        >>> import jax.numpy as jnp
        >>> W, O = jnp.eye(1), jnp.zeros((1, 1))
        >>> out = softmax_attention(W, O, O, jnp.ones((3, 1)), jnp.ones(1), d_scale=1)
        >>> float(out.h_query[0])  # three of four equal weights stay
        1.75

    Source: Yao et al. (2024), equations (1) and (2).
    """
    W_V, W_K, W_Q = as_projections(W_V, W_K, W_Q)
    H, h_query = as_tokens(H, h_query, W_V.shape[1])
    weights = softmax_weights(W_K, W_Q, H, h_query, d_scale=d_scale, mask=mask)
    sums = weights @ (stacked(H, h_query) @ W_V.T)
    return add_residual(H, h_query, (sums[:-1], sums[-1]), scale)


@calculator(static=("mask",), d_scale=scalar & positive)
def softmax_weights(
    W_K: Float[ArrayLike, "_d _n"],
    W_Q: Float[ArrayLike, "_d _n"],
    H: Float[ArrayLike, "_N _n"],
    h_query: Float[ArrayLike, "_n"],
    *,
    d_scale: Real[ArrayLike, ""],
    mask: Mask = "demos",
) -> Float[Array, "P P"]:
    r"""Attention weights :math:`a_{ij}` of :func:`softmax_attention`, masked.

    .. math::
        A = M \circ D^{-1} A_u , \qquad
        (A_u)_{ij} = \exp\big((W_K h_j)^\top W_Q h_i / \sqrt{d_{scale}}\big) , \qquad
        D = \operatorname{diag}(A_u \mathbf 1_{N+1}) .

    Rows are queries here, so the normaliser sums over rows. In the columns-are-tokens
    layout of the paper it must sum over columns, :math:`A_u \operatorname{diag}
    (\mathbf 1^\top A_u)^{-1}`, over N + 1 keys; equation (9) as printed sums over the
    other axis and gives different weights.

    Example:
        >>> import jax.numpy as jnp
        >>> O = jnp.zeros((1, 1))
        >>> softmax_weights(O, O, jnp.ones((1, 1)), jnp.ones(1), d_scale=1).tolist()
        [[0.5, 0.0], [0.5, 0.0]]

    Source: Yao et al. (2024), equations (1), (2) and (9), corrected.
    """
    W_K, W_Q, H, tokens = as_queries(W_K, W_Q, H, h_query, mask)
    logits = (tokens @ W_Q.T) @ (tokens @ W_K.T).T / jnp.sqrt(d_scale).astype(H.dtype)
    normalized = normalized_keys(mask, H.shape[0])
    weights = jax.nn.softmax(jnp.where(normalized, logits, -jnp.inf), axis=-1)
    return jnp.where(attended_keys(mask, H.shape[0]), weights, 0)
