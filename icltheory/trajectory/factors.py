"""Theorem 1 in thin factors, without data-dependent n x n matrices."""

from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._names import DemoUpdates
from icltheory._typing import Float
from icltheory.attention import LinearAttentionStack
from icltheory.trajectory._recursion import factor_recursion, prepare
from icltheory.trajectory.records import TrajectoryFactors

__all__ = ["implicit_gd_factors"]


@calculator
def implicit_gd_factors(
    stack: LinearAttentionStack,
    H: Float[ArrayLike, "_N _n"],
    *,
    demo_updates: DemoUpdates = "shared",
    scale: Real[ArrayLike, ""] = 1.0,
) -> TrajectoryFactors:
    r"""Thin factors of the trajectory of Theorem 1.

    .. math::
        \Delta W_t = V_t^\top U_t , \qquad G_t = V_t^\top C_t , \qquad
        C_t = U_t + \sum_{s < t} (U_t V_s^\top)\, C_s .

    One ``lax.scan`` over buffers of fixed shape (L, N, n); when N < n no n x n matrix
    that depends on the data is ever formed. Cost O(L N n^2 + L^2 N^2 n), memory
    O(L N n). Cheaper than :func:`~icltheory.trajectory.implicit_gd` while L N < n.

    Args:
        stack: The weights :math:`W_V, W_K, W_Q`, ``(L, n, n)`` each.
        H: Demonstrations, ``(N, n)``; N may be 0.
        demo_updates: ``"shared"``, ``"causal"`` or ``"frozen"``.
        scale: Factor c on the attention sum; it goes into :math:`V_t`.

    Returns:
        The factors, ``(L, N, n)`` each.

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.stack([jnp.eye(2)] * 2)
        >>> stack = LinearAttentionStack(I, I, I)
        >>> factors = implicit_gd_factors(stack, jnp.array([[1.0, 0.0]]))
        >>> factors.right_G.tolist()
        [[[1.0, 0.0]], [[4.0, 0.0]]]
        >>> factors.outputs(jnp.ones(2)).tolist()
        [[1.0, 1.0], [2.0, 1.0], [10.0, 1.0]]

    Source: Yao et al. (2024), Theorem 1.
    """
    learner, H = prepare(stack, H, demo_updates, scale)
    return TrajectoryFactors(*factor_recursion(learner, H))
