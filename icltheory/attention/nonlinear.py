r"""Nonlinear attention: a kernel in place of the inner product of key and query."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_choice, check_shape, scalar
from icltheory._core import calculator
from icltheory._typing import Array, Float, Mask
from icltheory.attention._layer import (
    LayerOutput,
    add_residual,
    as_queries,
    as_tokens,
    stacked,
)
from icltheory.attention.masks import attended_keys

__all__ = [
    "KERNELS",
    "Kernel",
    "kernel_attention",
    "kernel_matrix",
    "kernel_weights",
]

_FORMULAS: dict[str, Callable[[Any, Any], Any]] = {
    "linear": lambda x, z: x @ z,
    "relu": lambda x, z: jax.nn.relu(x @ z),
    "exp": lambda x, z: jnp.exp(x @ z),
    "rbf": lambda x, z: jnp.exp(-jnp.sum((x - z) ** 2) / 2),
}
KERNELS = tuple(_FORMULAS)
Kernel = str | Callable[[Any, Any], Any]


@calculator(static=("kernel",))
def kernel_matrix(
    kernel: Kernel, X: Float[ArrayLike, "_A _d"], Z: Float[ArrayLike, "_B _d"]
) -> Float[Array, "_A _B"]:
    r"""All values :math:`k(x_i, z_j)` of a kernel.

    .. math::
        x^\top z \;(\text{linear}), \quad (x^\top z)_+ \;(\text{relu}), \quad
        e^{x^\top z} \;(\text{exp}), \quad e^{-\|x - z\|^2 / 2} \;(\text{rbf}) .

    Args:
        kernel: A name in ``KERNELS``, or a function of two vectors that gives a number.

    Example:
        >>> import jax.numpy as jnp
        >>> kernel_matrix("relu", jnp.array([[1.0], [-1.0]]), jnp.ones((1, 1))).tolist()
        [[1.0], [0.0]]
        >>> square = kernel_matrix(lambda x, z: (x @ z) ** 2, jnp.ones((1, 3)),
        ...                        jnp.ones((1, 3)))
        >>> float(square[0, 0])
        9.0

    Source: Cheng et al. (2024), the nonlinearity of an attention layer.
    """
    value = check_kernel(kernel)
    X, Z = jnp.asarray(X), jnp.asarray(Z)
    check_shape("X", X, ("A", "d"))
    check_shape("Z", Z, ("B", X.shape[1]))
    return jax.vmap(lambda x: jax.vmap(lambda z: value(x, z))(Z))(X)


@calculator(static=("kernel", "mask"))
def kernel_weights(
    W_K: Float[ArrayLike, "_d _n"],
    W_Q: Float[ArrayLike, "_d _n"],
    H: Float[ArrayLike, "_N _n"],
    h_query: Float[ArrayLike, "_n"],
    *,
    kernel: Kernel = "linear",
    mask: Mask = "demos",
) -> Float[Array, "P P"]:
    r"""Weights :math:`k(W_Q h_i, W_K h_j)` of every token on every key, masked.

    With ``"linear"`` they are those of linear attention. They are not normalised. The
    kernel is as in :func:`kernel_matrix`.

    Rows are queries, the last is the query token's.

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.eye(1)
        >>> kernel_weights(I, I, jnp.array([[2.0]]), jnp.ones(1)).tolist()
        [[4.0, 0.0], [2.0, 0.0]]

    Source: Cheng et al. (2024); Yao et al. (2024), equation (3).
    """
    W_K, W_Q, H, tokens = as_queries(W_K, W_Q, H, h_query, mask)
    # A masked query key is left out, since an overflow of its kernel would make
    # derivatives NaN.
    keys = tokens if mask == "none" else H
    values = kernel_matrix(kernel, tokens @ W_Q.T, keys @ W_K.T)
    values = jnp.pad(values, ((0, 0), (0, len(tokens) - len(keys))))
    return jnp.where(attended_keys(mask, H.shape[0]), values, 0)


@calculator(static=("kernel", "mask"), scale=scalar)
def kernel_attention(
    W_V: Float[ArrayLike, "_n _n"],
    W_K: Float[ArrayLike, "_d _n"],
    W_Q: Float[ArrayLike, "_d _n"],
    H: Float[ArrayLike, "_N _n"],
    h_query: Float[ArrayLike, "_n"],
    *,
    kernel: Kernel = "linear",
    mask: Mask = "demos",
    scale: Real[ArrayLike, ""] = 1.0,
) -> LayerOutput:
    r"""Nonlinear attention with residual, without a normaliser.

    .. math::
        \hat h_i = h_i + c \sum_{j \in A(i)} k(W_Q h_i, W_K h_j)\, W_V h_j .

    Cost O(N n^2 + N^2 n). The kernel is as in :func:`kernel_matrix`.

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.eye(1)
        >>> out = kernel_attention(I, I, I, jnp.ones((2, 1)), -jnp.ones(1),
        ...                        kernel="relu")
        >>> out.H.tolist(), out.h_query.tolist()
        ([[3.0], [3.0]], [-1.0])

    Source: Cheng et al. (2024).
    """
    n = jnp.shape(W_K)[-1]
    check_shape("W_V", W_V, (n, n))
    H, h_query = as_tokens(H, h_query, n)
    weights = kernel_weights(W_K, W_Q, H, h_query, kernel=kernel, mask=mask)
    sums = weights @ (stacked(H, h_query) @ jnp.asarray(W_V).T)
    return add_residual(H, h_query, (sums[:-1], sums[-1]), scale)


def check_kernel(kernel: Kernel) -> Callable[[Any, Any], Any]:
    """Returns the formula of a named kernel; raises for an unknown name."""
    if not isinstance(kernel, str):
        return kernel
    check_choice("kernel", kernel, KERNELS)
    return _FORMULAS[kernel]
