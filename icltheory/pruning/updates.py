"""Effect of pruning on the norms of implicit updates: Examples 1 to 4 and Remark 5."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_choice, check_shape, count, finite, scalar
from icltheory._core import Record, calculator, widened
from icltheory._typing import Array, Bool, DemoUpdates, Float, Int, NormMethod, Scalar
from icltheory.attention import LinearAttentionStack
from icltheory.linalg import low_rank_approximation, thin_frobenius_inner
from icltheory.pruning.methods import LowRank
from icltheory.pruning.rates import as_strength, check_ranks
from icltheory.trajectory import implicit_gd_norms

_ATTENTION = ("W_V", "W_K", "W_Q")
_MODULES = (*_ATTENTION, "W_in", "W_out", "W_MLP")


class UpdateBound(Record):
    r"""Squared norm of the implicit update, and two candidate bounds on it.

    Args:
        exact: :math:`\|\Delta W\|_F^2`.
        printed: UB of Example 1, which is not a bound of ``exact``.
        corrected: N times UB, which does bound ``exact``.

    Source: Yao et al. (2024), Example 1.
    """

    exact: Scalar
    printed: Scalar
    corrected: Scalar


@calculator(W_V=finite, W_K=finite, W_Q=finite, scale=scalar)
def update_upper_bound(
    W_V: Float[ArrayLike, "*_V"],
    W_K: Float[ArrayLike, "*_K"],
    W_Q: Float[ArrayLike, "*_Q"],
    H: Float[ArrayLike, "*_H"],
    *,
    scale: Real[ArrayLike, ""] = 1.0,
) -> UpdateBound:
    r"""Example 1's claimed bound, which can fail, and a valid bound.

    .. math::
        \mathrm{UB} &= c^2 \sum_i \|W_V h_i\|^2 \|W_K h_i\|^2 \, \|W_Q\|_F^2 , \\
        \|\Delta W\|_F^2 &= c^2\, \mathbf 1^\top [(V^\top V) \circ (U^\top U)]
        \mathbf 1 \le N\, \mathrm{UB} , \qquad
        v_i = W_V h_i , \; u_i = W_Q^\top W_K h_i ,

    with the factor c = ``scale`` on the attention sum. The square of a sum of N terms
    is at most N times the sum of their squares, with equality for N equal
    demonstrations: there :math:`\|\Delta W\|_F^2 = N\,\mathrm{UB}` if :math:`W_K h` is
    a leading left singular vector of a rank-one :math:`W_Q`, and without the N the
    claim :math:`\|\Delta W\|_F^2 \le \mathrm{UB}` is false. What the example concludes
    for UB is true: it falls when any of the three is pruned.

    Example:
        >>> found = update_upper_bound([[1.0]], [[1.0]], [[1.0]], 4 * [[1.0]])
        >>> float(found.exact), float(found.printed), float(found.corrected)
        (16.0, 4.0, 16.0)

    Source: Yao et al. (2024), Example 1 and equation (19).
    """
    weights, H = _widened({"W_V": W_V, "W_K": W_K, "W_Q": W_Q}, H)
    V, K = H @ weights["W_V"].T, H @ weights["W_K"].T
    square = jnp.asarray(scale, H.dtype) ** 2
    exact = _square_of_product(V, K @ weights["W_Q"])
    terms = jnp.sum(jnp.sum(V**2, axis=1) * jnp.sum(K**2, axis=1))
    printed = square * terms * jnp.sum(weights["W_Q"] ** 2)
    return UpdateBound(square * exact, printed, H.shape[0] * printed)


def _square_of_product(V, U):
    """Squared norm of V^T U, by the smaller of N x N and n x n products."""
    if V.shape[0] < V.shape[1]:
        return thin_frobenius_inner(V.T, U.T, V.T, U.T)
    return jnp.sum((V.T @ U) ** 2)


class UpdateSplit(Record):
    r"""Squared norm of the update, split into kept, removed and cross terms.

    .. math:: \|A + B\|_F^2 = \|A\|_F^2 + \|B\|_F^2 + 2 \langle A, B \rangle_F

    Args:
        whole: :math:`\|A + B\|_F^2`, the update before pruning.
        kept: :math:`\|A\|_F^2`, the update after pruning.
        removed: :math:`\|B\|_F^2`.
        cross: :math:`\langle A, B \rangle_F`. Zero makes (20) an equality; positive
            makes it false; below minus half of ``removed``, pruning raises the norm.

    Source: Yao et al. (2024), equation (20).
    """

    whole: Scalar
    kept: Scalar
    removed: Scalar
    cross: Scalar


def _up_to_size(name, rank, given):
    pair = ("W_out", "W_in") if given["module"] == "W_MLP" else 2 * (given["module"],)
    shapes = [np.shape(given[name]) for name in pair if given.get(name) is not None]
    # Where a matrix is missing or none, the calculator says so.
    fits = len(shapes) == 2 and all(len(shape) == 2 for shape in shapes)
    return count(0, min(shapes[0][0], shapes[1][1]) if fits else None)(name, rank)


@calculator(
    static=("module",),
    integers=("rank",),
    rank=_up_to_size,
    W_V=finite,
    W_K=finite,
    W_Q=finite,
    W_in=finite,
    W_out=finite,
    scale=scalar,
)
def update_split(
    module: str,
    rank: int | Int[Array, ""],
    W_V: Float[ArrayLike, "*_V"],
    W_K: Float[ArrayLike, "*_K"],
    W_Q: Float[ArrayLike, "*_Q"],
    H: Float[ArrayLike, "*_H"],
    *,
    W_in: Float[ArrayLike, "*_in"] | None = None,
    W_out: Float[ArrayLike, "*_out"] | None = None,
    scale: Real[ArrayLike, ""] = 1.0,
) -> UpdateSplit:
    r"""Effect of pruning one matrix to rank r on the norm of the implicit update.

    .. math::
        \Delta W = A + B , \qquad A = \Delta W(M_r) , \qquad B = \Delta W(M - M_r) ,

    the update being linear in the matrix M. The paper argues with
    :math:`\|A + B\|_F^2 \le \|A\|_F^2 + \|B\|_F^2`, its (20), which holds if and only
    if :math:`\langle A, B \rangle \le 0`, and would not show that the norm falls.

    * ``"W_Q"`` (Example 2), :math:`A + B = z M_r + z \delta`: equality always. The norm
      of the update falls; that of the later implicit gradients need not.
    * ``"W_V"`` (Example 3), :math:`M_r X + \delta X`: equality without an MLP. With
      one it stands between two others: false.
    * ``"W_K"`` (Example 3): false. The matrix stands between two others, and pruning it
      can raise the norm. The example's claim holds for UB only.
    * ``"W_MLP"`` (Example 4), the product :math:`W_{out} W_{in}` of a linear MLP pruned
      as one matrix: equality always. ``"W_out"`` alone stands outermost: equality.
      ``"W_in"`` alone stands between: false, and so it is for both one by one.

    The rank may be traced.

    Example:
        >>> I, W = [[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 1.0]]
        >>> split = update_split("W_Q", 1, I, I, W, I)
        >>> [round(float(x), 6) for x in (split.whole, split.kept, split.removed)]
        [5.0, 4.0, 1.0]

    Source: Yao et al. (2024), Examples 2 to 4, equations (18) and (20).
    """
    check_choice("module", module, _MODULES)
    if (W_in is None) != (W_out is None) or (W_in is None and module not in _ATTENTION):
        raise ValueError("W_in, W_out: expected both matrices of the MLP, got None")
    weights = {"W_V": W_V, "W_K": W_K, "W_Q": W_Q}
    if W_in is not None and W_out is not None:
        weights |= {"W_in": W_in, "W_out": W_out}
    weights, H = _widened(weights, H)
    if "W_in" in weights:
        weights["W_MLP"] = weights["W_out"] @ weights["W_in"]
    clipped = low_rank_approximation(weights[module], rank)
    parts = weights[module], clipped, weights[module] - clipped
    whole, A, B = (_update(weights | {module: M}, H, module) for M in parts)
    square = jnp.asarray(scale, H.dtype) ** 2
    pairs = (whole, whole), (A, A), (B, B), (A, B)
    return UpdateSplit(*(square * jnp.sum(x * y) for x, y in pairs))


def _update(weights, H, module):
    z = (H @ weights["W_V"].T).T @ (H @ weights["W_K"].T @ weights["W_Q"])
    if "W_in" not in weights:
        return z
    if module == "W_MLP":
        return weights["W_MLP"] @ z
    return weights["W_out"] @ (weights["W_in"] @ z)


def _widened(weights, H):
    weights, H = {name: widened(W) for name, W in weights.items()}, widened(H)
    check_shape("W_V", weights["W_V"], ("d_v", "n"))
    d_v, n = weights["W_V"].shape
    check_shape("W_K", weights["W_K"], ("d_k", n))
    check_shape("W_Q", weights["W_Q"], (weights["W_K"].shape[0], n))
    check_shape("H", H, ("N", n))
    if "W_in" in weights:
        check_shape("W_in", weights["W_in"], ("d_2", d_v))
        check_shape("W_out", weights["W_out"], (n, weights["W_in"].shape[0]))
    return weights, H


class DepthTable(Record):
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


def _finite_module(name, stack, given):
    module = given["module"]
    check_choice("module", module, _ATTENTION)
    check_shape(module, getattr(stack, module), ("L", "n", "n"))  # one head
    return finite(module, getattr(stack, module))


# Not compiled as a whole, since a rate may be of any type; its parts are.
@calculator(
    compiled=False,
    static=("module", "strength", "demo_updates", "method"),
    stack=_finite_module,
    scale=scalar,
)
def depth_table(
    stack: LinearAttentionStack,
    H: Float[ArrayLike, "_N _n"],
    module: str,
    strength: Any,
    *,
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

    ``module`` is ``"W_V"``, ``"W_K"`` or ``"W_Q"``, pruned as by :func:`prune`. Cost:
    L + 1 times that of :func:`~icltheory.trajectory.implicit_gd_norms`, whose
    ``demo_updates``, ``scale`` and ``method`` it takes.

    Example:
        >>> import jax.numpy as jnp
        >>> W = jnp.stack([jnp.diag(jnp.array([1.0, 0.5]))] * 2)
        >>> stack = LinearAttentionStack(W, W, W)
        >>> depth_table(stack, jnp.eye(2), "W_V", 0.5).changed.tolist()
        [[True, True], [False, True]]

    Source: Yao et al. (2024), Remark 5.
    """
    W = getattr(stack, module)
    strength = as_strength(strength, "strength: expected a number")
    check_ranks([W.shape[1:]], [strength])
    rank = LowRank().kept(W.shape[1:], strength)
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
    delta_W, G = found.delta_W, found.G
    moved = _moved(delta_W) | _moved(G)
    return DepthTable(delta_W[:-1], G[:-1], delta_W[-1], G[-1], moved)


def _moved(norms):
    """Whether each row differs from the last by more than rounding."""
    after, before = norms[:-1], norms[-1:]
    return jnp.abs(after - before) > 1000 * jnp.finfo(norms.dtype).eps * before
