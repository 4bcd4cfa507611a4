"""The subspace that contains the implicit gradient noise, from the weights alone."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import (
    all_hold,
    check_positive_int,
    check_shape,
    finite,
    wrong,
)
from icltheory._core import calculator, widened
from icltheory._typing import Array, Int
from icltheory.attention import LinearAttentionStack
from icltheory.linalg.decomposition import finite_or_nan
from icltheory.noise._routes import image_of_symmetric

# Above this width the exact count takes seconds.
_WIDE = 512
# Up to this width computing singular vectors is faster than compiling the alternative.
_NARROW = 32
# The same as _WIDE of several heads, whose count decomposes a matrix of n^2 rows.
_WIDE_HEADS = 64


def finite_stack(name, stack, given):
    """Checks a stack of linear attention with finite weights."""
    if not isinstance(stack, LinearAttentionStack):
        raise wrong(name, "a LinearAttentionStack", stack)
    weights = {"W_V": stack.W_V, "W_K": stack.W_K, "W_Q": stack.W_Q}
    return all_hold(*(finite(name, W) for name, W in weights.items()))


def countable(name, stack, given):
    """Checks that the weights are finite, unless the dimensions m_t are given."""
    known = given.get("support_dims") is not None
    return True if known else finite_stack(name, stack, given)


@calculator(static=("limit",), stack=countable)
def support_dims(
    stack: LinearAttentionStack, *, limit: int | None = None
) -> Int[Array, " L"]:
    r"""Dimension of the space that contains the noise of each layer, for any data.

    .. math:: m_t = \dim \{ A X B : X = X^\top \} = r s - k (k - 1) / 2 , \qquad
        r = \operatorname{rank} A, \quad s = \operatorname{rank} B, \quad
        k = \dim(\operatorname{row} A \cap \operatorname{col} B) ,

    with :math:`A = W_V` and :math:`B = W_K^\top W_Q`: every gradient is
    :math:`A (h h^\top) B (1 + W_{t-1})`. It is n(n + 1)/2 for
    generic weights and d_in d_out for those of gradient descent. The noise fills less
    where :math:`1 + W_{t-1}` is singular or the tokens share a constant coordinate.
    For several heads it is the rank of X -> sum A X B, O(L n^6), up to n = 64. Else
    cost O(L n^3); counting up to a ``limit``, such as N, down to O(L n^2 sqrt(limit)).

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.stack([jnp.eye(3)] * 2)
        >>> W_Q = I.at[1, 2, 2].set(0.0)  # the second layer has rank 2
        >>> support_dims(LinearAttentionStack(I, I, W_Q)).tolist()
        [6, 5]
        >>> support_dims(LinearAttentionStack(I, I, W_Q), limit=4).tolist()
        [4, 4]

    Source: The dimension count is this library's own, stated for the covariance of Yao
    et al. (2024), section 3.3.
    """
    if limit is not None:
        check_positive_int("limit", limit)

    def one(layer):
        weights = layer.W_V, layer.W_K, layer.W_Q
        if layer.W_V.ndim == 3:
            dim = _heads_dim(*weights)
            return dim if limit is None else jnp.minimum(dim, limit)
        return _layer_dim(*weights) if limit is None else _at_most(limit, *weights)

    wide = jax.tree.map(widened, stack)
    return jax.lax.map(one, jax.lax.stop_gradient(wide))


def dims_of(stack: LinearAttentionStack, given: Any, enough: int | None) -> Array:
    """Returns the given dimensions m_t, or those determined by the weights.

    Wide weights are counted up to ``enough`` only: beyond, all that follows is equal.
    """
    if given is None:
        wide = stack.W_V.shape[-1] > _WIDE
        return support_dims(stack, limit=enough if wide else None)
    check_shape("support_dims", given, (stack.num_layers,))
    dims = jnp.asarray(given)
    if not jnp.issubdtype(dims.dtype, jnp.integer):
        raise wrong("support_dims", "integers", dims)
    return dims


def _heads_dim(W_V, W_K, W_Q):
    """Rank of X -> sum over heads of A X B on the symmetric matrices."""
    if W_V.shape[-1] > _WIDE_HEADS:
        got = f"None at width {W_V.shape[-1]}"
        raise ValueError(
            f"support_dims: expected numbers for several heads wider than "
            f"{_WIDE_HEADS}, got {got}"
        )
    return _column_basis(image_of_symmetric(W_V, jnp.swapaxes(W_K, 1, 2) @ W_Q))[1]


def _at_most(limit, W_V, W_K, W_Q):
    """The smaller of m_t and the limit, from the image of X = Q S Q^T of rank k."""
    n, k = W_V.shape[-1], math.ceil(math.sqrt(2 * limit + 0.25) - 0.5)
    if k > n:
        return jnp.minimum(_layer_dim(W_V, W_K, W_Q), limit)
    Q = jax.random.normal(jax.random.key(0), (n, k), W_V.dtype)
    left, keys = W_V @ Q, W_K @ Q
    right = W_Q.T @ keys
    # Cancellation leaves rounding errors that are small relative to the factors.
    full = _independent(left, jnp.linalg.norm(left)) & _independent(
        right, jnp.linalg.norm(keys) * jnp.linalg.norm(W_Q)
    )
    return jax.lax.cond(
        full,
        lambda: jnp.asarray(limit),
        # Without full rank some weight is deficient, so no test for that is compiled.
        lambda: jnp.minimum(_dim_from_bases(W_V, W_K, W_Q), limit),
    )


def _independent(columns, size):
    """Whether the columns are independent by a margin far above rounding."""
    triangle = finite_or_nan(jnp.linalg.qr(columns, mode="r"))
    smallest = jnp.linalg.svd(triangle, compute_uv=False)[-1]
    return smallest > jnp.finfo(columns.dtype).eps ** 0.5 * size


def _layer_dim(W_V, W_K, W_Q):
    """Computes m_t; singular vectors are needed only for deficient weights."""
    n = W_V.shape[-1]
    if n <= _NARROW:
        return _dim_from_bases(W_V, W_K, W_Q)
    regular = jnp.all(jax.vmap(_surely_regular)(jnp.stack([W_V, W_K, W_Q])))
    return jax.lax.cond(
        regular,
        lambda: jnp.asarray(n * (n + 1) // 2),
        lambda: _dim_from_bases(W_V, W_K, W_Q),
    )


def _dim_from_bases(W_V, W_K, W_Q):
    left, r = _column_basis(W_V.T)
    query, _ = _column_basis(W_Q)
    right, s = _column_basis(W_K.T @ query, jnp.max(jnp.abs(W_K), axis=0))
    # Nested bases differ by angles at rounding level; the power 2/3 allows for their
    # growth.
    both = finite_or_nan(jnp.concatenate([left, right], 1))
    together = jnp.linalg.svd(both, compute_uv=False)
    k = r + s - jnp.sum(together > jnp.finfo(together.dtype).eps ** (2 / 3))
    return r * s - k * (k - 1) // 2


def _surely_regular(W):
    """Whether the smallest singular value is clearly above the tolerance.

    Power iteration on W^T W and its inverse: a fifth of the time of an SVD. The two
    estimates err by less than the factor 4 that is left to them.
    """
    factors = jax.scipy.linalg.lu_factor(W)

    def iterate(vectors, _):
        x, z = (v / jnp.linalg.norm(v) for v in vectors)
        Wx, y = W @ x, jax.scipy.linalg.lu_solve(factors, z, trans=1)
        after = W.T @ Wx, jax.scipy.linalg.lu_solve(factors, y)
        return after, (jnp.linalg.norm(Wx), 1 / jnp.linalg.norm(y))

    start = jax.random.normal(jax.random.key(0), W.shape[:1], W.dtype)
    _, (largest, smallest) = jax.lax.scan(iterate, (start, start), length=5)
    return smallest[-1] > 4 * _tolerance(largest[-1])


def _column_basis(W, sizes=None):
    """Orthonormal basis of the columns, padded with zero columns, and the rank.

    The rank is that of rows and columns of equal size, since units do not change it;
    rows of a product have the sizes of its first factor, from which it is rounded.
    """
    U, _, _ = jnp.linalg.svd(finite_or_nan(W), full_matrices=False)
    rows = jnp.max(jnp.abs(W), axis=1) if sizes is None else sizes
    even = W / jnp.where(rows > 0, rows, 1)[:, None]
    if sizes is None:
        columns = jnp.max(jnp.abs(even), axis=0)
        even = even / jnp.where(columns > 0, columns, 1)[None]
    s = jnp.linalg.svd(finite_or_nan(even), compute_uv=False)
    rank = jnp.sum(s > _tolerance(s[0] if sizes is None else jnp.maximum(s[0], 1)))
    return U * (jnp.arange(s.shape[0]) < rank)[None], rank


def _tolerance(largest):
    """Bound on the rounding error of a singular value that is exactly 0."""
    # For products of truncated factors of width 1000 the error is below twice the
    # precision.
    return 6 * jnp.finfo(largest.dtype).eps * largest
