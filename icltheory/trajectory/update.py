"""Lemma 1: the weight update that one layer of linear attention performs."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_choice, check_shape
from icltheory._names import MLPForm
from icltheory._precision import widened
from icltheory._typing import Array, Float
from icltheory.attention import MLP_FORMS
from icltheory.attention._layer import as_mlp, as_projections

__all__ = ["implicit_update", "implicit_update_mlp"]


@calculator
def implicit_update(
    W_V: Float[ArrayLike, "_n _n"],
    W_K: Float[ArrayLike, "_n _n"],
    W_Q: Float[ArrayLike, "_n _n"],
    H: Float[ArrayLike, "_N _n"],
    *,
    scale: Real[ArrayLike, ""] = 1.0,
) -> Float[Array, "n n"]:
    r"""The implicit update of Lemma 1.

    .. math::
        \Delta W_{icl} = c \sum_{i=1}^N W_V h_i \,(W_K h_i)^\top W_Q , \qquad
        \hat h_{N+1} = h_{N+1} + \Delta W_{icl}\, h_{N+1} .

    It is minus the gradient, at any W, of the linear loss
    :math:`-c \sum_i (W_V h_i)^\top W \,(W_Q^\top W_K h_i)`. Its rank is at most
    :math:`\min(\operatorname{rank} W_V H, \operatorname{rank} W_K H,
    \operatorname{rank} W_Q) \le N`. The query must not be a key (mask ``"demos"`` or
    ``"causal"``). Cost O(N n^2) if N < n, O(N n^2 + n^3) otherwise.

    Args:
        W_V: Value matrix, ``(n, n)``.
        W_K: Key matrix, ``(n, n)``.
        W_Q: Query matrix, ``(n, n)``.
        H: Demonstrations :math:`h_i`, ``(N, n)``; N may be 0.
        scale: Factor c on the attention sum, the papers' 1/N.

    Returns:
        :math:`\Delta W_{icl}`, ``(n, n)``.

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.eye(2)
        >>> implicit_update(I, I, I, jnp.array([[1.0, 2.0]])).tolist()
        [[1.0, 2.0], [2.0, 4.0]]

    Source: Yao et al. (2024), Lemma 1 and Remark 1.
    """
    W_V, W_K, W_Q = map(widened, as_projections(W_V, W_K, W_Q))
    H = widened(H)
    check_shape("H", H, ("N", W_V.shape[1]))
    return jnp.asarray(scale, H.dtype) * _sum_of_products(W_V, W_K, W_Q, H)


@calculator
def implicit_update_mlp(
    W_V: Float[ArrayLike, "_d1 _n"],
    W_K: Float[ArrayLike, "_d1 _n"],
    W_Q: Float[ArrayLike, "_d1 _n"],
    W_in: Float[ArrayLike, "_d2 _d1"],
    W_out: Float[ArrayLike, "_n _d2"],
    H: Float[ArrayLike, "_N _n"],
    h_query: Float[ArrayLike, "_n"] | None = None,
    *,
    scale: Real[ArrayLike, ""] = 1.0,
    mlp: MLPForm = "gated",
) -> Float[Array, "n n"]:
    r"""The implicit update of linear attention followed by an MLP, Appendix B.3.

    .. math::
        \Delta W'' = W_{out}\, \Lambda\, W_{in}\, z , \qquad
        z = c \sum_i W_V h_i \,(W_K h_i)^\top W_Q , \qquad
        \hat h_{N+1} = h_{N+1} + \Delta W'' h_{N+1} ,

    with the gate :math:`\Lambda = \operatorname{diag}(1[W_{in} z\, h_{N+1} > 0])` for
    ``"gated"``, 1 for ``"linear"`` and 1/2 for ``"half"``. The gated form is the exact
    relu block, and depends on the query; the paper's :math:`\Delta W''` is the linear
    form, which is not close to the relu block.

    Args:
        W_V: Value matrix, ``(dim1, n)``.
        W_K: Key matrix, ``(dim1, n)``.
        W_Q: Query matrix, ``(dim1, n)``.
        W_in: First MLP matrix, ``(dim2, dim1)``.
        W_out: Second MLP matrix, ``(n, dim2)``.
        H: Demonstrations, ``(N, n)``.
        h_query: Query token, ``(n,)``; needed for ``"gated"`` only.
        scale: Factor c on the attention sum.
        mlp: ``"gated"``, ``"linear"`` or ``"half"``.

    Returns:
        :math:`\Delta W''`, ``(n, n)``.

    Example:
        >>> import jax.numpy as jnp
        >>> I, H = jnp.eye(1), jnp.ones((2, 1))
        >>> implicit_update_mlp(I, I, I, I, I, H, mlp="half").tolist()
        [[1.0]]

    Source: Yao et al. (2024), Appendix B.3.
    """
    check_choice("mlp", mlp, MLP_FORMS)
    W_V, W_K, W_Q, W_in, W_out = map(widened, as_mlp(W_V, W_K, W_Q, W_in, W_out))
    H = widened(H)
    check_shape("H", H, ("N", W_V.shape[1]))
    z = jnp.asarray(scale, H.dtype) * _sum_of_products(W_V, W_K, W_Q, H)
    if mlp != "gated":
        return W_out @ W_in @ z * (0.5 if mlp == "half" else 1.0)
    if h_query is None:
        raise ValueError("h_query: expected a token for mlp='gated', got None")
    check_shape("h_query", h_query, (H.shape[1],))
    gate = W_in @ (z @ jnp.asarray(h_query)) > 0
    return jnp.where(gate[None], W_out, 0) @ W_in @ z


def _sum_of_products(W_V, W_K, W_Q, H):
    return (H @ W_V.T).T @ (H @ W_K.T @ W_Q)
