"""Theorem 1: implicit gradient descent as matrices, thin factors, norms and errors."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_choice, finite, scalar
from icltheory._core import calculator
from icltheory._typing import DemoUpdates, DenseMethod, Float, NormMethod
from icltheory.attention import LinearAttentionStack, LinearTransformerStack
from icltheory.linalg import safe_sqrt, thin_frobenius_inner
from icltheory.linalg.products import frobenius_norm, magnitude
from icltheory.trajectory._recursion import (
    check_stack,
    choose_dense,
    demo_factors,
    dense_recursion,
    factor_recursion,
    num_heads,
    prepare,
)
from icltheory.trajectory.records import (
    BlockTrajectory,
    Trajectory,
    TrajectoryNorms,
)


@calculator(static=("demo_updates", "method"), scale=scalar)
def implicit_gd(
    stack: LinearAttentionStack,
    H: Float[ArrayLike, "_N _n"],
    *,
    demo_updates: DemoUpdates = "shared",
    scale: Real[ArrayLike, ""] = 1.0,
    method: DenseMethod = "auto",
) -> Trajectory:
    r"""The implicit gradient descent of Theorem 1, in dense matrices.

    .. math::
        \Delta W_t = c \sum_{i=1}^N W_V^t h_i^{t-1} \,(W_K^t h_i^{t-1})^\top W_Q^t ,
        \qquad G_t = \Delta W_t (1 + W_{t-1}) , \qquad W_t = W_{t-1} + G_t .

    The query is never a key: with the mask ``"none"`` :math:`W_t` would depend on it.

    Args:
        demo_updates: How the layers change the demonstrations: ``"shared"`` (all attend
            to all, the papers' M, and :math:`H^t = H (1 + W_t)^\top`), ``"causal"``
            (i attends to j <= i) or ``"frozen"`` (they keep their input values).
        scale: Factor c on the attention sum, the papers' 1/N.
        method: ``"dense"``, O(L (N n^2 + n^3)), or ``"gram"``, O(N n^2 + L n^3), which
            carries :math:`H^\top H` and excludes ``"causal"``. ``"auto"`` is ``"gram"``
            where it can be and N > n.

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


@calculator(static=("demo_updates", "method"), scale=scalar)
def implicit_gd_norms(
    stack: LinearAttentionStack,
    H: Float[ArrayLike, "_N _n"],
    *,
    demo_updates: DemoUpdates = "shared",
    scale: Real[ArrayLike, ""] = 1.0,
    method: NormMethod = "auto",
) -> TrajectoryNorms:
    r"""Frobenius norms of the updates, gradients and weights of :func:`implicit_gd`.

    .. math::
        \|\Delta W_t\|_F^2 &= \mathbf 1^\top [(V_t V_t^\top) \circ (U_t U_t^\top)]
        \mathbf 1 , \\
        \|G_t\|_F^2 &= \mathbf 1^\top [(V_t V_t^\top) \circ (C_t C_t^\top)]
        \mathbf 1 , \\
        \|1 + W_t\|_F^2 &= n + 2 \operatorname{tr} W_t
        + \sum_{r, s \le t} \langle G_r, G_s \rangle_F .

    ``"factors"`` evaluates these lines, and loses half of the digits of a norm that is
    small by cancellation; ``"auto"`` takes it when L N < n. Derivatives at 0 are 0.

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
    rows = num_heads(learner.stack) * H.shape[0]
    few_demos = learner.stack.num_layers * rows < H.shape[1]
    if method == "factors" or (method == "auto" and few_demos):
        return _norms_of_factors(*factor_recursion(learner, H))
    method = choose_dense(method, demo_updates, H)
    norms = dense_recursion(learner, H, method, _norms_of_step)
    return TrajectoryNorms(*norms)


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
        >>> import jax.numpy as jnp
        >>> I = jnp.eye(1)[None]
        >>> stack = LinearTransformerStack(I[None], I[None], I[None], I, I)
        >>> found = implicit_gd_blocks(stack, jnp.ones((2, 1)), jnp.ones(1))
        >>> found.G.item(), found.mlp.item(), found.outputs(jnp.ones(1)).tolist()
        (2.0, 3.0, [[1.0], [6.0]])

    Source: Yao et al. (2024), Theorem 1 and Appendix B.3.
    """
    check_stack(stack, LinearTransformerStack)
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
