"""Lemma 1: the weight update that one layer of linear attention performs."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_choice, check_shape, scalar
from icltheory._core import calculator, widened
from icltheory._typing import Array, Float, MLPForm
from icltheory.attention import MLP_FORMS
from icltheory.attention._layer import as_mlp, as_projections


@calculator(scale=scalar)
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

    It is minus the gradient of the linear loss
    :math:`-c \sum_i (W_V h_i)^\top W \,(W_Q^\top W_K h_i)`. The query is no key (mask
    ``"demos"`` or ``"causal"``).

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.eye(2)
        >>> implicit_update(I, I, I, jnp.array([[1.0, 2.0]])).tolist()
        [[1.0, 2.0], [2.0, 4.0]]

    Source: Yao et al. (2024), Lemma 1 and Remark 1.
    """
    W_V, W_K, W_Q = map(widened, as_projections(W_V, W_K, W_Q))
    return _sum_of_products(W_V, W_K, W_Q, widened(H), scale)


@calculator(static=("mlp",), scale=scalar)
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
        \hat h_{N+1} = h_{N+1} + \Delta W'' h_{N+1} .

    Args:
        h_query: Query token, which only ``"gated"`` needs.
        mlp: :math:`\Lambda`: the gate :math:`\operatorname{diag}(1[W_{in} z\, h_{N+1} >
            0])` of the exact relu block for ``"gated"``, 1 for ``"linear"``, the
            paper's form, which is not close to that block, and 1/2 for ``"half"``.

    Example:
        >>> import jax.numpy as jnp
        >>> I, H = jnp.eye(1), jnp.ones((2, 1))
        >>> implicit_update_mlp(I, I, I, I, I, H, mlp="half").tolist()
        [[1.0]]

    Source: Yao et al. (2024), Appendix B.3.
    """
    check_choice("mlp", mlp, MLP_FORMS)
    W_V, W_K, W_Q, W_in, W_out = map(widened, as_mlp(W_V, W_K, W_Q, W_in, W_out))
    z = _sum_of_products(W_V, W_K, W_Q, widened(H), scale)
    if mlp != "gated":
        return W_out @ W_in @ z * (0.5 if mlp == "half" else 1.0)
    if h_query is None:
        raise ValueError("h_query: expected a token for mlp='gated', got None")
    check_shape("h_query", h_query, (z.shape[1],))
    gate = W_in @ (z @ jnp.asarray(h_query)) > 0
    return jnp.where(gate[None], W_out, 0) @ W_in @ z


def _sum_of_products(W_V, W_K, W_Q, H, scale):
    check_shape("H", H, ("N", W_V.shape[1]))
    return jnp.asarray(scale, H.dtype) * ((H @ W_V.T).T @ (H @ W_K.T @ W_Q))
