"""Frobenius norms along the trajectory, by the cheapest of three methods."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_choice
from icltheory._names import DemoUpdates, NormMethod
from icltheory._typing import Float
from icltheory.attention import LinearAttentionStack
from icltheory.linalg import safe_sqrt, thin_frobenius_inner
from icltheory.linalg.products import frobenius_norm, magnitude
from icltheory.trajectory._recursion import (
    choose_dense,
    dense_recursion,
    factor_recursion,
    prepare,
)
from icltheory.trajectory.records import TrajectoryNorms

__all__ = ["implicit_gd_norms"]


@calculator
def implicit_gd_norms(
    stack: LinearAttentionStack,
    H: Float[ArrayLike, "_N _n"],
    *,
    demo_updates: DemoUpdates = "shared",
    scale: Real[ArrayLike, ""] = 1.0,
    method: NormMethod = "auto",
) -> TrajectoryNorms:
    r"""Norms of the implicit updates, gradients and weights of Theorem 1.

    .. math::
        \|\Delta W_t\|_F^2 &= \mathbf 1^\top [(V_t V_t^\top) \circ (U_t U_t^\top)]
        \mathbf 1 , \\
        \|G_t\|_F^2 &= \mathbf 1^\top [(V_t V_t^\top) \circ (C_t C_t^\top)]
        \mathbf 1 , \\
        \|1 + W_t\|_F^2 &= n + 2 \operatorname{tr} W_t
        + \sum_{r, s \le t} \langle G_r, G_s \rangle_F .

    ``"factors"`` evaluates these lines, O(L N n^2 + L^2 N^2 n), and forms no n x n
    matrix that depends on the data; ``"dense"`` and ``"gram"`` are the two paths of
    :func:`~icltheory.trajectory.implicit_gd`, with nothing n x n kept between layers.
    ``"auto"`` decides by the shapes: factors when L N < n, otherwise gram when N > n
    and the demonstrations are not causal, otherwise dense. All three agree to rounding.
    In the factor path a norm that is small by cancellation loses half of the digits;
    see :func:`~icltheory.linalg.thin_frobenius_norm`. Norms have derivative 0 at 0, and
    their squares do not overflow.

    Args:
        stack: The weights :math:`W_V, W_K, W_Q`, ``(L, n, n)`` each.
        H: Demonstrations, ``(N, n)``; N may be 0.
        demo_updates: ``"shared"``, ``"causal"`` or ``"frozen"``.
        scale: Factor c on the attention sum.
        method: ``"auto"``, ``"factors"``, ``"dense"`` or ``"gram"``.

    Returns:
        :math:`\|\Delta W_t\|`, :math:`\|G_t\|` and :math:`\|1 + W_{t-1}\|`,
        t = 1, ..., L, Frobenius.

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.stack([jnp.eye(3)] * 2)
        >>> stack = LinearAttentionStack(I, I, I)
        >>> norms = implicit_gd_norms(stack, jnp.array([[1.0, 0.0, 0.0]]))
        >>> norms.delta_W.tolist(), norms.G.tolist()
        ([1.0, 4.0], [1.0, 8.0])
        >>> norms.one_plus_W.round(6).tolist()
        [1.732051, 2.44949]

    Source: Yao et al. (2024), Theorem 2 and Examples 1-3.
    """
    check_choice("method", method, ("auto", "factors", "dense", "gram"))
    learner, H = prepare(stack, H, demo_updates, scale)
    few_demos = learner.stack.num_layers * H.shape[0] < H.shape[1]
    if method == "factors" or (method == "auto" and few_demos):
        return _norms_of_factors(*factor_recursion(learner, H))
    method = choose_dense(method, demo_updates, H)
    norms = dense_recursion(learner, H, method, _norms_of_step)
    return TrajectoryNorms(*norms)


def _norms_of_step(delta_W, G, W):
    one = jnp.eye(W.shape[0], dtype=W.dtype)
    return tuple(map(frobenius_norm, (delta_W, G, one + W)))


def _norms_of_factors(V, U, C):
    # Each factor in a unit of its layer, so that no square overflows.
    v, u, c = (jax.vmap(magnitude)(factor) for factor in (V, U, C))
    V, U, C = (
        factor / unit[:, None, None] for factor, unit in ((V, v), (U, u), (C, c))
    )
    squares = jax.vmap(lambda A, B: thin_frobenius_inner(A.T, B.T, A.T, B.T))(V, U)
    gram = _inner_products(V, C)
    return TrajectoryNorms(
        v * safe_sqrt(squares) * u,
        v * safe_sqrt(jnp.diagonal(gram)) * c,
        _norms_of_one_plus(gram, jnp.sum(V * C, axis=(1, 2)), v * c, V.shape[-1]),
    )


def _norms_of_one_plus(gram, traces, sizes, n):
    """The norms of 1 + W before each layer, of gradients in units of their sizes."""
    L = len(sizes)
    # The unit before a layer is the largest size up to there, or 1 for the identity.
    one = jnp.ones_like(sizes[:1])
    units = jax.lax.cummax(jnp.maximum(jnp.concatenate([one, sizes[:-1]]), 1))
    before = jnp.tri(L, k=-1, dtype=bool)  # a later layer may not be finite
    share = jnp.where(before, sizes[None] / units[:, None], 0)
    trace = jnp.sum(jnp.where(before, share * traces[None], 0), axis=1)
    both = before[:, :, None] & before[:, None]
    products = share[:, :, None] * share[:, None] * gram[None]
    squares = jnp.sum(jnp.where(both, products, 0), axis=(1, 2))
    return units * safe_sqrt(n / units**2 + 2 * trace / units + squares)


def _inner_products(V, C):
    """The matrix of <G_r, G_s>, computed row by row to bound memory."""

    def inner(A, B, rows):
        return thin_frobenius_inner(A.T, B.T, rows[0].T, rows[1].T)

    def row(rows):
        return jax.vmap(lambda A, B: inner(A, B, rows))(V, C)

    return jax.lax.map(row, (V, C))
