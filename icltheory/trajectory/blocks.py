"""Theorem 1 for blocks of attention heads and an MLP with residuals."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_choice, finite, scalar
from icltheory._core import calculator
from icltheory._names import DemoUpdates
from icltheory._typing import Array, Float
from icltheory.attention import LinearTransformerStack
from icltheory.trajectory._recursion import demo_factors
from icltheory.trajectory.records import Trajectory

__all__ = ["BlockTrajectory", "implicit_gd_blocks"]


class BlockTrajectory(Trajectory):
    r"""A trajectory of blocks, :math:`W_t = W_{t-1} + G_t + F_t`.

    Args:
        mlp: Updates :math:`F_t` of the MLP, ``(L, n, n)``.
    """

    mlp: Float[Array, "L n n"]


@calculator(static=("demo_updates",), H=finite, h_query=finite, scale=scalar)
def implicit_gd_blocks(
    stack: LinearTransformerStack,
    H: Float[ArrayLike, "_N _n"],
    h_query: Float[ArrayLike, "_n"],
    *,
    demo_updates: DemoUpdates = "shared",
    scale: Real[ArrayLike, ""] = 1.0,
) -> BlockTrajectory:
    r"""The updates of heads and MLP that move one query, :math:`h^t = (1 + W_t) h^0`.

    .. math::
        \Delta W_t = c \sum_{a, i} W_V^a h_i (W_K^a h_i)^\top W_Q^a , \quad
        G_t = \Delta W_t (1 + W_{t-1}) , \quad
        F_t = W_{out} \Lambda_t W_{in} (1 + W_{t-1} + G_t)

    with the tokens h_i before block t and :math:`\Lambda_t` the query's gates (1 or 1/2
    for a linear MLP). The demonstrations alone determine :math:`\Delta W_t`. For relu
    F_t depends on the query through its gates, is not 0 without demonstrations, and the
    demonstrations have other gates: they are not :math:`(1 + W_t) h_i^0`, so that noise
    and Theorem 2 do not extend. For a linear MLP they do, by ``stack.without_mlp()``.

    Args:
        demo_updates: ``"shared"`` or ``"causal"``.
        scale: Factor c on the attention sum, the papers' 1/N.

    Example:
        >>> I = jnp.eye(1)[None]
        >>> stack = LinearTransformerStack(I[None], I[None], I[None], I, I)
        >>> found = implicit_gd_blocks(stack, jnp.ones((2, 1)), jnp.ones(1))
        >>> found.G.item(), found.mlp.item(), found.outputs(jnp.ones(1)).tolist()
        (2.0, 3.0, [[1.0], [6.0]])

    Source: Yao et al. (2024), Theorem 1 and Appendix B.3.
    """
    check_choice("demo_updates", demo_updates, ("shared", "causal"))
    mask = "demos" if demo_updates == "shared" else "causal"
    depths = stack.apply(H, h_query, mask, scale=scale)
    one = jnp.eye(stack.width, dtype=depths.H.dtype)

    def step(W, inputs):
        layer, H, h = inputs
        V, U = demo_factors(layer, H, jnp.asarray(scale, H.dtype))
        delta_W = V.T @ U
        G = delta_W + delta_W @ W
        gates = {"gated": layer.W_in @ (h + delta_W @ h) > 0, "half": 0.5}
        gated = jnp.atleast_2d(gates.get(stack.mlp, 1)).astype(H.dtype) * layer.W_out
        F = gated @ (layer.W_in @ (one + W + G))
        return W + G + F, (delta_W, G, W + G + F, F)

    cast = jax.tree.map(lambda leaf: leaf.astype(one.dtype), stack)
    start = cast, depths.H[:-1], depths.h_query[:-1]
    return BlockTrajectory(*jax.lax.scan(step, jnp.zeros_like(one), start)[1])
