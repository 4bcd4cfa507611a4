"""Examples 1 to 4: effect of pruning one matrix on the norm of the implicit update."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_choice, check_finite, check_shape
from icltheory._precision import widened
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, Int, Scalar
from icltheory.linalg import low_rank_approximation, thin_frobenius_inner

__all__ = ["UpdateBound", "UpdateSplit", "update_split", "update_upper_bound"]

_ATTENTION = ("W_V", "W_K", "W_Q")
_MODULES = (*_ATTENTION, "W_in", "W_out", "W_MLP")


@pytree
class UpdateBound:
    r"""Squared norm of the implicit update, and two candidate bounds on it.

    Args:
        exact: :math:`\|\Delta W\|_F^2`.
        printed: UB of Example 1. Not a bound of ``exact``; it bounds the sum of the
            squared norms of the single demonstrations' terms.
        corrected: N times UB, which does bound ``exact``.

    Source: Yao et al. (2024), Example 1.
    """

    exact: Scalar
    printed: Scalar
    corrected: Scalar


@calculator
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
        v_i = W_V h_i , \; u_i = W_Q^\top W_K h_i .

    The square of a sum of N terms is at most N times the sum of their squares, with
    equality for N equal demonstrations: there :math:`\|\Delta W\|_F^2 = N\,\mathrm{UB}`
    if :math:`W_K h` is a leading left singular vector of a rank-one :math:`W_Q`, and
    without the N the claim :math:`\|\Delta W\|_F^2 \le \mathrm{UB}` is false. What the
    example concludes for UB is true: it falls when any of the three is pruned.

    Args:
        W_V: Value matrix, ``(d_v, n)``.
        W_K: Key matrix, ``(d_k, n)``.
        W_Q: Query matrix, ``(d_k, n)``.
        H: Demonstrations, ``(N, n)``.
        scale: Factor c on the attention sum.

    Returns:
        The exact value, UB as printed, and N UB.

    Example:
        >>> import jax.numpy as jnp
        >>> I, H = jnp.eye(1), jnp.ones((4, 1))
        >>> found = update_upper_bound(I, I, I, H)
        >>> float(found.exact), float(found.printed), float(found.corrected)
        (16.0, 4.0, 16.0)

    Source: Yao et al. (2024), Example 1 and equation (19).
    """
    weights, H = _checked({"W_V": W_V, "W_K": W_K, "W_Q": W_Q}, H)
    V, K = H @ weights["W_V"].T, H @ weights["W_K"].T
    square = jnp.asarray(scale, H.dtype) ** 2
    exact = _square_of_product(V, K @ weights["W_Q"])
    terms = jnp.sum(jnp.sum(V**2, axis=1) * jnp.sum(K**2, axis=1))
    printed = square * terms * jnp.sum(weights["W_Q"] ** 2)
    return UpdateBound(square * exact, printed, H.shape[0] * printed)


@pytree
class UpdateSplit:
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


@calculator
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
    * ``"W_MLP"`` (Example 4), the product :math:`W_{out} W_{in}` pruned as one matrix:
      equality always. ``"W_out"`` alone stands outermost: equality. ``"W_in"`` alone
      stands between: false, and so it is for both pruned one by one.

    Args:
        module: ``"W_V"``, ``"W_K"``, ``"W_Q"``, ``"W_in"``, ``"W_out"`` or ``"W_MLP"``.
        rank: Singular values kept; may be traced.
        W_V: Value matrix, ``(d_v, n)``.
        W_K: Key matrix, ``(d_k, n)``.
        W_Q: Query matrix, ``(d_k, n)``.
        H: Demonstrations, ``(N, n)``.
        W_in: First matrix of a linear MLP behind attention, ``(d_2, d_v)``.
        W_out: Its second matrix, ``(n, d_2)``.
        scale: Factor c on the attention sum.

    Returns:
        The four numbers, with ``whole = kept + removed + 2 cross``.

    Example:
        >>> import jax.numpy as jnp
        >>> I, W, H = jnp.eye(2), jnp.diag(jnp.array([2.0, 1.0])), jnp.eye(2)
        >>> split = update_split("W_Q", 1, I, I, W, H)
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
    weights, H = _checked(weights, H)
    if "W_in" in weights:
        weights["W_MLP"] = weights["W_out"] @ weights["W_in"]
    clipped = low_rank_approximation(weights[module], rank)
    parts = clipped, weights[module] - clipped
    square = jnp.asarray(scale, H.dtype) ** 2
    whole, A, B = (
        _update(weights | {module: M}, H, module) for M in (weights[module], *parts)
    )
    return UpdateSplit(
        square * jnp.sum(whole**2),
        square * jnp.sum(A**2),
        square * jnp.sum(B**2),
        square * jnp.sum(A * B),
    )


def _update(weights, H, module):
    z = (H @ weights["W_V"].T).T @ (H @ weights["W_K"].T @ weights["W_Q"])
    if "W_in" not in weights:
        return z
    if module == "W_MLP":
        return weights["W_MLP"] @ z
    return weights["W_out"] @ (weights["W_in"] @ z)


def _square_of_product(V, U):
    """Squared norm of V^T U, by the smaller of N x N and n x n products."""
    if V.shape[0] < V.shape[1]:
        return thin_frobenius_inner(V.T, U.T, V.T, U.T)
    return jnp.sum((V.T @ U) ** 2)


def _checked(weights, H):
    weights = {name: widened(W) for name, W in weights.items()}
    H = widened(H)
    check_shape("W_V", weights["W_V"], ("d_v", "n"))
    d_v, n = weights["W_V"].shape
    check_shape("W_K", weights["W_K"], ("d_k", n))
    check_shape("W_Q", weights["W_Q"], (weights["W_K"].shape[0], n))
    check_shape("H", H, ("N", n))
    if "W_in" in weights:
        check_shape("W_in", weights["W_in"], ("d_2", d_v))
        check_shape("W_out", weights["W_out"], (n, weights["W_in"].shape[0]))
    for name, W in weights.items():
        check_finite(name, W)
    return weights, H
