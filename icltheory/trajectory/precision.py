"""Difference between Theorem 1's recursion and the forward pass in low precision."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_choice
from icltheory._names import DemoUpdates, NormMethod
from icltheory._typing import Array, Float
from icltheory.attention import LinearAttentionStack
from icltheory.trajectory.dense import implicit_gd
from icltheory.trajectory.factors import implicit_gd_factors

__all__ = ["depth_errors"]


@calculator
def depth_errors(
    stack: LinearAttentionStack,
    H: Float[ArrayLike, "_N _n"],
    h_query: Float[ArrayLike, "_n"],
    *,
    demo_updates: DemoUpdates = "shared",
    scale: Real[ArrayLike, ""] = 1.0,
    method: NormMethod = "auto",
    dtype=jnp.float32,
) -> Float[Array, " L"]:
    r"""Relative error of the recursion in ``dtype`` against the float64 forward pass.

    .. math::
        e_t = \big\| (1 + W_t)\, h^0 - h^t \big\|_2 / \| h^t \|_2 ,
        \qquad t = 1, \dots, L ,

    with :math:`W_t` computed in ``dtype`` and :math:`h^t` by the layers in float64.
    Both start from the arguments rounded to ``dtype``, so that only arithmetic is
    measured. Growth comes from the degree of the polynomial :math:`1 + W_t`, not from
    rounding. Products are exact on every device, and half precision is read as it is
    and then computed in float32, as in every calculator here.

    Args:
        stack: The weights :math:`W_V, W_K, W_Q`, ``(L, n, n)`` each.
        H: Demonstrations, ``(N, n)``.
        h_query: Query token, ``(n,)``.
        demo_updates: ``"shared"`` or ``"causal"``; the forward pass uses the mask
            ``"demos"`` or ``"causal"``.
        scale: Factor c on the attention sum.
        method: ``"auto"``, ``"dense"``, ``"gram"`` or ``"factors"``.
        dtype: Precision of the recursion.

    Returns:
        :math:`e_1, \dots, e_L`, ``(L,)`` in float64; NaN where both overflow.

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.stack([jnp.eye(2)] * 3) / 10
        >>> stack = LinearAttentionStack(I, I, I)
        >>> errors = depth_errors(stack, jnp.eye(2), jnp.ones(2))
        >>> errors.shape, bool((errors < 1e-6).all())
        ((3,), True)

    Source: Yao et al. (2024), Theorem 1.
    """
    if jnp.result_type(float) != jnp.float64:
        raise ValueError("depth_errors: expected jax_enable_x64, got float64 disabled")
    check_choice("demo_updates", demo_updates, ("shared", "causal"))
    low = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), (stack, H, h_query))
    exact = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), low)
    if method == "factors":
        trajectory = implicit_gd_factors(
            *low[:2], demo_updates=demo_updates, scale=scale
        )
    else:
        trajectory = implicit_gd(
            *low[:2], demo_updates=demo_updates, scale=scale, method=method
        )
    mask = "demos" if demo_updates == "shared" else "causal"
    forward = exact[0].apply(*exact[1:], mask, scale=scale).h_query[1:]
    recursion = trajectory.outputs(low[2])[1:].astype(jnp.float64)
    error = jnp.linalg.norm(recursion - forward, axis=1)
    size = jnp.linalg.norm(forward, axis=1)
    return error / jnp.where((size == 0) & (error == 0), 1, size)
