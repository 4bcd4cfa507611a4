"""Theorem 1 in dense matrices, from the tokens or from their Gram matrix."""

from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._names import DemoUpdates, DenseMethod
from icltheory._typing import Float
from icltheory.attention import LinearAttentionStack
from icltheory.trajectory._recursion import choose_dense, dense_recursion, prepare
from icltheory.trajectory.records import Trajectory

__all__ = ["implicit_gd"]


@calculator
def implicit_gd(
    stack: LinearAttentionStack,
    H: Float[ArrayLike, "_N _n"],
    *,
    demo_updates: DemoUpdates = "shared",
    scale: Real[ArrayLike, ""] = 1.0,
    method: DenseMethod = "auto",
) -> Trajectory:
    r"""The implicit gradient descent trajectory of Theorem 1.

    .. math::
        \Delta W_t = c \sum_{i=1}^N W_V^t h_i^{t-1} \,(W_K^t h_i^{t-1})^\top W_Q^t ,
        \qquad G_t = \Delta W_t (1 + W_{t-1}) , \qquad W_t = W_{t-1} + G_t .

    The theorem telescopes whatever the demonstrations do between the layers, as long as
    the query is never a key; with the mask ``"none"`` :math:`W_t` would depend on the
    query, so that mask is refused. With ``"shared"`` every token moves by the same
    matrix, :math:`H^t = H (1 + W_t)^\top`, and everything is a function of
    :math:`S = H^\top H`. The literal :math:`\sum_j G_t` of the paper is a slip for
    :math:`\sum_j G_j`. :math:`G_t` is not the gradient of any one loss for generic
    weights; for the weights of gradient descent it is.

    Cost O(L (N n^2 + n^3)) for ``"dense"`` and O(N n^2 + L n^3) for ``"gram"``, which
    carries :math:`S_t = (1 + \Delta W_t) S_{t-1} (1 + \Delta W_t)^\top` instead of the
    tokens; ``"auto"`` takes ``"gram"`` when N > n.

    Args:
        stack: The weights :math:`W_V, W_K, W_Q`, ``(L, n, n)`` each.
        H: Demonstrations :math:`h_i^0`, ``(N, n)``; N may be 0.
        demo_updates: How the layers change the demonstrations: ``"shared"`` (all attend
            to all, the papers' M), ``"causal"`` (i attends to j <= i) or ``"frozen"``
            (they keep their input values).
        scale: Factor c on the attention sum, the papers' 1/N.
        method: ``"auto"``, ``"dense"`` or ``"gram"`` (not with ``"causal"``).

    Returns:
        :math:`\Delta W_t`, :math:`G_t` and :math:`W_t` for t = 1, ..., L.

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.eye(2)[None]
        >>> stack = LinearAttentionStack(I, I, I)
        >>> trajectory = implicit_gd(stack, jnp.array([[1.0, 0.0]]))
        >>> trajectory.W[-1].tolist()
        [[1.0, 0.0], [0.0, 0.0]]
        >>> trajectory.outputs(jnp.ones(2)).tolist()
        [[1.0, 1.0], [2.0, 1.0]]

    Source: Yao et al. (2024), Theorem 1 and Remark 2.
    """
    learner, H = prepare(stack, H, demo_updates, scale)
    method = choose_dense(method, demo_updates, H)

    def emit(delta_W, G, W):
        return delta_W, G, W + G

    return Trajectory(*dense_recursion(learner, H, method, emit))
