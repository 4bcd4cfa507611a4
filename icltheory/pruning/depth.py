"""Remark 5's table: norms of all implicit updates with each layer pruned in turn."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_choice, check_finite
from icltheory._names import DemoUpdates, NormMethod, Rule
from icltheory._pytree import pytree
from icltheory._typing import Array, Bool, Float
from icltheory.attention import LinearAttentionStack
from icltheory.linalg import low_rank_approximation
from icltheory.pruning.clipping import resolve_rank
from icltheory.trajectory import implicit_gd_norms

__all__ = ["DepthTable", "depth_table"]


@pytree
class DepthTable:
    r"""Norms by layer, unpruned and with each layer pruned, counted from 0.

    Args:
        delta_W: :math:`\|\Delta W_t\|_F` when layer k is pruned, ``[k, t]``.
        G: :math:`\|G_t\|_F` when layer k is pruned, ``[k, t]``.
        delta_W_unpruned: :math:`\|\Delta W_t\|_F` of the stack as it is, ``[t]``.
        G_unpruned: :math:`\|G_t\|_F` of the stack as it is, ``[t]``.
        changed: Whether either norm moved by more than rounding (1000 times the machine
            precision, relative), ``[k, t]``.

    Source: Yao et al. (2024), Remark 5.
    """

    delta_W: Float[Array, "L L"]
    G: Float[Array, "L L"]
    delta_W_unpruned: Float[Array, " L"]
    G_unpruned: Float[Array, " L"]
    changed: Bool[Array, "L L"]


@calculator
def depth_table(
    stack: LinearAttentionStack,
    H: Float[ArrayLike, "_N _n"],
    module: str,
    *,
    rate: Any = None,
    rank: int | None = None,
    rule: Rule = "floor",
    demo_updates: DemoUpdates = "shared",
    scale: Real[ArrayLike, ""] = 1.0,
    method: NormMethod = "auto",
) -> DepthTable:
    r"""Norms of all implicit updates with layer k pruned, for every k.

    .. math::
        \|\Delta W_t^{(k)}\|_F , \; \|G_t^{(k)}\|_F , \qquad k, t = 1, \dots, L , \qquad
        W^{(k)} = (W^1, \dots, W^k_r, \dots, W^L) .

    What is true of Remark 5: the layers t < k are untouched, exactly, and generically
    all L - k + 1 layers t >= k change (its text says t > k, its count says t >= k).
    What is not: "invariably", since pruning the rank-one value matrix of gradient
    descent changes nothing at all; and that a deep layer acts more steadily. With the
    weights of gradient descent, pruning layer k lowers :math:`\|G_k\|` and raises every
    later :math:`\|G_t\|`: later steps do the work again.

    One ``vmap`` over the L + 1 stacks; the cost is L + 1 times that of
    :func:`~icltheory.trajectory.implicit_gd_norms`. Prompts batch by ``vmap`` over H.

    Args:
        stack: The weights, ``(L, n, n)`` each.
        H: Demonstrations, ``(N, n)``.
        module: ``"W_V"``, ``"W_K"`` or ``"W_Q"``.
        rate: Clipping rate :math:`\xi`, in [0, 1); this or ``rank``.
        rank: Rank r, from 1 to n; this or ``rate``.
        rule: How a rate becomes a rank: ``"floor"``, ``"nearest"`` or ``"ceil"``.
        demo_updates: ``"shared"``, ``"causal"`` or ``"frozen"``.
        scale: Factor on the attention sum of every layer, the papers' 1/N.
        method: ``"auto"``, ``"factors"``, ``"dense"`` or ``"gram"``, the path of
            :func:`~icltheory.trajectory.implicit_gd_norms`.

    Returns:
        The table.

    Example:
        >>> import jax.numpy as jnp
        >>> W = jnp.stack([jnp.diag(jnp.array([1.0, 0.5]))] * 2)
        >>> stack = LinearAttentionStack(W, W, W)
        >>> table = depth_table(stack, jnp.eye(2), "W_V", rank=1)
        >>> table.changed.tolist()
        [[True, True], [False, True]]

    Source: Yao et al. (2024), Remark 5.
    """
    check_choice("module", module, ("W_V", "W_K", "W_Q"))
    W = getattr(stack, module)
    check_finite(module, W)
    rank = resolve_rank(W.shape[1:], rate, rank, rule)
    clipped = jax.vmap(lambda W_t: low_rank_approximation(W_t, rank))(W)
    clipped = W if rank == W.shape[-1] else clipped
    layers = jnp.arange(W.shape[0] + 1)  # the last row prunes nothing

    def norms(k):
        chosen = (layers[:-1] == k)[:, None, None]
        one = dataclasses.replace(stack, **{module: jnp.where(chosen, clipped, W)})
        return implicit_gd_norms(
            one, H, demo_updates=demo_updates, scale=scale, method=method
        )

    found = jax.vmap(norms)(layers)
    pairs = [(x[:-1], x[-1]) for x in (found.delta_W, found.G)]
    moved = [_moved(after, before) for after, before in pairs]
    (delta_W, delta_W_unpruned), (G, G_unpruned) = pairs
    return DepthTable(delta_W, G, delta_W_unpruned, G_unpruned, moved[0] | moved[1])


def _moved(after, before):
    rounding = 1000 * jnp.finfo(before.dtype).eps
    return jnp.abs(after - before[None]) > rounding * before[None]
