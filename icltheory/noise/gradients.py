"""Each demonstration's contribution to the implicit gradient, in factor form."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_choice, check_shape
from icltheory._names import DemoUpdates
from icltheory._typing import Float
from icltheory.attention import LinearAttentionStack
from icltheory.trajectory._recursion import (
    Learner,
    factor_recursion,
    parts_on_path,
    prepare,
    token_recursion,
)
from icltheory.trajectory.records import TrajectoryFactors

__all__ = ["demonstration_gradients"]


@calculator
def demonstration_gradients(
    stack: LinearAttentionStack,
    H: Float[ArrayLike, "_N _n"],
    *,
    demo_updates: DemoUpdates = "shared",
    scale: Real[ArrayLike, ""] = 1.0,
    W: Float[ArrayLike, "_L _n _n"] | None = None,
) -> TrajectoryFactors:
    r"""The implicit gradient that each demonstration contributes, at every layer.

    .. math::
        g_i^t = c\, W_V^t h_i^{t-1} \,(h_i^{t-1})^\top (W_K^t)^\top W_Q^t
        (1 + W_{t-1}) , \qquad \sum_{i=1}^N g_i^t = G_t , \qquad z_i^t = N g_i^t .

    The papers write :math:`\nabla \ell_i` and :math:`G_t = \frac1N \sum_i
    \nabla \ell_i`: that is :math:`z_i`, so that the covariance of the noise is built
    from :math:`z_i`; from :math:`g_i` it would be N^2 too small.

    Cost O(L N n^2 + L^2 N^2 n) when L N < n, with no n x n matrix that depends on the
    data; otherwise O(L (N n^2 + n^3)).

    Args:
        stack: The weights :math:`W_V, W_K, W_Q`, ``(L, n, n)`` each.
        H: Demonstrations, ``(N, n)``.
        demo_updates: ``"shared"``, ``"causal"`` or ``"frozen"``.
        scale: Factor c on the attention sum, the papers' 1/N.
        W: The weights :math:`W_0, \dots, W_{L-1}` at which the gradients are taken,
            such as those of a noisy path; without them, those of Theorem 1. Then not
            with ``"causal"``, where the gradient is no function of them.

    Returns:
        The factors of :math:`g_i^t`, one row for each demonstration.

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.eye(2)[None]
        >>> stack = LinearAttentionStack(I, I, I)
        >>> H = jnp.array([[1.0, 0.0], [0.0, 2.0]])
        >>> demonstration_gradients(stack, H).per_demonstration(0).tolist()
        [[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 4.0]]]

    Source: Yao et al. (2024), section 3.3.
    """
    learner, H = prepare(stack, H, demo_updates, scale)
    return path_gradients(learner, H, W)


def path_gradients(learner: Learner, H, W) -> TrajectoryFactors:
    """Factors of the gradients by the cheaper recursion, or at given weights."""
    if W is None and learner.stack.num_layers * H.shape[0] < H.shape[1]:
        return TrajectoryFactors(*factor_recursion(learner, H))
    _, V, U, C, _ = layer_parts(learner, H, W)
    return TrajectoryFactors(V, U, C)


def layer_parts(learner: Learner, H, W):
    """Tokens, V, U, C and B of every layer, on Theorem 1's path or at given weights."""
    if W is None:
        return token_recursion(learner, H)
    check_choice("demo_updates", learner.demo_updates, ("shared", "frozen"))
    check_shape("W", W, learner.stack.W_V.shape)
    return parts_on_path(learner, H, jnp.asarray(W, H.dtype))
