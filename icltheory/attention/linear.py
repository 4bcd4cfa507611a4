"""Linear attention, equation (3), alone and followed by an MLP, Appendix B.3."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_choice, scalar
from icltheory._core import calculator
from icltheory._typing import Float, Mask, MLPForm
from icltheory.attention._layer import (
    LayerOutput,
    add_residual,
    as_mlp,
    as_projections,
    as_tokens,
    stacked,
)
from icltheory.attention.masks import MASKS, attended_keys

MLP_FORMS = ("gated", "linear", "half")


@calculator(static=("mask",), scale=scalar)
def linear_attention(
    W_V: Float[ArrayLike, "_n _n"],
    W_K: Float[ArrayLike, "_n _n"],
    W_Q: Float[ArrayLike, "_n _n"],
    H: Float[ArrayLike, "_N _n"],
    h_query: Float[ArrayLike, "_n"],
    *,
    mask: Mask = "demos",
    scale: Real[ArrayLike, ""] = 1.0,
) -> LayerOutput:
    r"""Linear attention with residual, equation (3), for every token.

    .. math::
        \hat h_i = h_i + c \sum_{j \in A(i)} W_V h_j \, (W_K h_j)^\top W_Q h_i ,

    with c = ``scale`` and A(i) the keys that token i may attend to. Cost
    O(N n^2 + N n min(N, n)); with ``"causal"`` O(N n^2 + N^2 n).

    Args:
        H: Demonstrations :math:`h_1, \dots, h_N`, ``(N, n)``; N may be 0.
        scale: Factor c on the attention sum, the papers' 1/N where they have one.

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.eye(2)
        >>> out = linear_attention(I, I, I, jnp.array([[1.0, 0.0]]), jnp.ones(2))
        >>> out.h_query.tolist()
        [2.0, 1.0]

    Source: Yao et al. (2024), equation (3).
    """
    W_V, W_K, W_Q = as_projections(W_V, W_K, W_Q)
    check_choice("mask", mask, MASKS)
    H, h_query = as_tokens(H, h_query, W_V.shape[1])
    sums = _linear_sums(W_V, W_K, W_Q, H, h_query, mask)
    return add_residual(H, h_query, sums, scale)


@calculator(static=("mask", "mlp"), scale=scalar)
def mlp_attention(
    W_V: Float[ArrayLike, "_d1 _n"],
    W_K: Float[ArrayLike, "_d1 _n"],
    W_Q: Float[ArrayLike, "_d1 _n"],
    W_in: Float[ArrayLike, "_d2 _d1"],
    W_out: Float[ArrayLike, "_n _d2"],
    H: Float[ArrayLike, "_N _n"],
    h_query: Float[ArrayLike, "_n"],
    *,
    mask: Mask = "demos",
    scale: Real[ArrayLike, ""] = 1.0,
    mlp: MLPForm = "gated",
) -> LayerOutput:
    r"""Linear attention followed by an MLP, Appendix B.3.

    .. math::
        \hat h_i = h_i + W_{out}\, \phi(W_{in} z_i) , \qquad
        z_i = c \sum_{j \in A(i)} W_V h_j \, (W_K h_j)^\top W_Q h_i ,

    with :math:`\phi(u) = \operatorname{relu}(u) = 1[u > 0]\, u` for ``"gated"``,
    :math:`u` for ``"linear"`` and :math:`u / 2` for ``"half"``. Only ``"gated"`` is the
    block that the paper writes down; the other two are linear stand-ins. As in the
    paper, and unlike real models, no residual runs between attention and MLP.

    Example:
        >>> import jax.numpy as jnp
        >>> I, H = jnp.eye(1), jnp.ones((1, 1))
        >>> for form in ("linear", "half", "gated"):
        ...     out = mlp_attention(I, I, I, -I, -I, H, jnp.ones(1), mlp=form)
        ...     print(form, out.h_query.tolist())
        linear [2.0]
        half [1.5]
        gated [1.0]

    Source: Yao et al. (2024), Appendix B.3.
    """
    V, K, Q, W_1, W_2 = as_mlp(W_V, W_K, W_Q, W_in, W_out)
    check_choice("mask", mask, MASKS)
    check_choice("mlp", mlp, MLP_FORMS)
    H, h_query = as_tokens(H, h_query, V.shape[1])
    factor = jnp.asarray(scale, H.dtype)
    sums = _linear_sums(V, K, Q, H, h_query, mask)
    moved = [_activate((factor * z) @ W_1.T, mlp) @ W_2.T for z in sums]
    return add_residual(H, h_query, moved, 1)


def _linear_sums(W_V, W_K, W_Q, H, h_query, mask):
    """Attention sums without scale and residual, ``(N, m)`` and ``(m,)``."""
    tokens = stacked(H, h_query)
    attended = tokens if mask == "none" else H
    queries, keys, values = tokens @ W_Q.T, attended @ W_K.T, attended @ W_V.T
    if mask == "causal":
        allowed = attended_keys(mask, H.shape[0])[:, :-1]
        sums = jnp.where(allowed, queries @ keys.T, 0) @ values
    else:
        sums = jnp.linalg.multi_dot([queries, keys.T, values])
    return sums[:-1], sums[-1]


def _activate(u, mlp):
    return jax.nn.relu(u) if mlp == "gated" else u if mlp == "linear" else u / 2
