"""Kernel gradient descent at every depth: recursion and closed form."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_positive_int, check_shape
from icltheory._noted import check_at_least
from icltheory._pytree import pytree
from icltheory._typing import Array, Bool, Float, Scalar
from icltheory.regression._linalg import Number
from icltheory.regression.kernel_descent.system import KernelSystem

__all__ = [
    "KernelDescent",
    "descent_weights",
    "functional_descent",
    "kernel_descent",
]


@pytree
class KernelDescent:
    r"""Predictions of L layers, and conditions under which depth helps.

    Args:
        prediction: :math:`f_L(x_{query})` at each depth, ``(T,)``.
        limit: The prediction of infinitely many layers where they converge: kriging,
            :math:`k_q^\top K^{+} y`.
        step_size: r.
        largest_step: :math:`2 / \lambda_{\max}`.
        positive_semidefinite: Whether the kernel matrix is, up to rounding.
        converges: Whether it is and r < 2 / lambda_max; else the depth diverges.
        asymmetry: See :class:`KernelSystem`; the closed form needs it to be 0.

    Source: Cheng et al. (2024).
    """

    prediction: Float[Array, " T"]
    limit: Scalar
    step_size: Scalar
    largest_step: Scalar
    positive_semidefinite: Bool[Array, ""]
    converges: Bool[Array, ""]
    asymmetry: Scalar


@calculator
def functional_descent(
    system: KernelSystem,
    y: Float[ArrayLike, " N"],
    step_size: Number,
    num_steps: int,
) -> Float[Array, " T"]:
    r"""Predictions along functional gradient descent, step by step.

    .. math:: f_{l+1} = f_l + r \sum_{i \le N} (y_i - f_l(x_i))\, k(\cdot, x_i) ,
              \qquad f_0 = 0 .

    Args:
        system: The kernel on the prompt.
        y: Labels, ``(N,)``.
        step_size: r.
        num_steps: L.

    Returns:
        :math:`f_0, \dots, f_L` at the query, ``(L + 1,)``.

    Example:
        >>> import jax.numpy as jnp
        >>> one = KernelSystem.of("linear", jnp.array([[1.0]]), jnp.array([2.0]))
        >>> functional_descent(one, jnp.array([3.0]), 0.5, 3).tolist()
        [0.0, 3.0, 4.5, 5.25]

    Source: Cheng et al. (2024), functional gradient descent.
    """
    check_shape("y", y, (len(system.normalizers),))
    check_positive_int("num_steps", num_steps)
    y = jnp.asarray(y, system.matrix.dtype)
    r = jnp.asarray(step_size, y.dtype)

    def step(values, _):
        fitted, asked = values
        residual = y - fitted
        new = fitted + r * (system.matrix @ residual)
        new = new, asked + r * (system.query_row @ residual)
        return new, new[1]

    start = jnp.zeros_like(y), jnp.zeros((), y.dtype)
    _, later = jax.lax.scan(step, start, length=num_steps)
    return jnp.concatenate([start[1][None], later])


@calculator
def descent_weights(
    system: KernelSystem, step_size: Number, depths: Real[ArrayLike, " T"]
) -> Float[Array, "T N"]:
    r"""Weights w of the prediction :math:`w^\top y` at each depth, in closed form.

    .. math::
        w_L^\top = k_q^\top h_L(K) , \qquad
        h_L(\lambda) = r \sum_{l < L} (1 - r \lambda)^l
                     = \frac{1 - (1 - r \lambda)^L}{\lambda} , \quad h_L(0) = r L ,

    which is :math:`k_q^\top K^{-1} (I - (I - r K)^L)` and holds for singular K too.
    One eigendecomposition serves all depths.

    Args:
        system: The kernel on the prompt, of a symmetric function or softmax.
        step_size: r.
        depths: Numbers of layers, 0 included, ``(T,)``.

    Returns:
        Weights, ``(T, N)``.

    Example:
        >>> import jax.numpy as jnp
        >>> one = KernelSystem.of("linear", jnp.array([[1.0]]), jnp.array([2.0]))
        >>> descent_weights(one, 0.5, jnp.array([0, 1, 3])).ravel().tolist()
        [0.0, 1.0, 1.75]

    Source: Cheng et al. (2024).
    """
    check_shape("depths", depths, ("T",))
    check_at_least("depths", depths, 0)
    lam = system.eigenvalues
    L = jnp.asarray(depths, lam.dtype)[:, None]
    x = (jnp.asarray(step_size, lam.dtype) * lam)[None]
    # Near 0 the difference of powers suffers cancellation; beyond 1 the logarithm is
    # undefined.
    near = jnp.abs(x) < 0.5
    by_log = -jnp.expm1(L * jnp.log1p(-jnp.where(near, x, 0)))
    by_power = 1 - (1 - jnp.where(near, 1, x)) ** L
    sums = jnp.where(near, by_log, by_power)
    zero = lam[None] == 0
    h = jnp.where(zero, step_size * L, sums / jnp.where(zero, 1, lam[None]))
    root, U = jnp.sqrt(system.normalizers), system.eigenvectors
    return (h * (U.T @ (system.query_row / root))[None]) @ U.T * root[None]


@calculator
def kernel_descent(
    system: KernelSystem,
    y: Float[ArrayLike, " N"],
    step_size: Number,
    depths: Real[ArrayLike, " T"],
) -> KernelDescent:
    r"""Predictions at given depths, with conditions under which depth helps.

    Args:
        system: The kernel on the prompt.
        y: Labels, ``(N,)``.
        step_size: r; ``system.largest_step / 2`` is one over the largest eigenvalue.
        depths: Numbers of layers, ``(T,)``.

    Returns:
        Predictions, their limit and the conditions.

    Example:
        >>> import jax.numpy as jnp
        >>> X, y = jnp.array([[1.0], [-2.0]]), jnp.array([3.0, 4.0])
        >>> relu = KernelSystem.of("relu", X, jnp.ones(1))
        >>> found = kernel_descent(relu, y, 0.25, jnp.array([1, 1000]))
        >>> found.prediction.tolist(), float(found.limit), bool(found.converges)
        ([0.75, 3.0], 3.0, True)
        >>> bool(kernel_descent(relu, y, 0.6, jnp.array([1])).converges)
        False

    Source: Cheng et al. (2024).
    """
    check_shape("y", y, (len(system.normalizers),))
    r = jnp.asarray(step_size, system.matrix.dtype)
    weights = descent_weights(system, r, depths)
    lam, root, U = (
        system.eigenvalues,
        jnp.sqrt(system.normalizers),
        system.eigenvectors,
    )
    seen = jnp.abs(lam) > system.cutoff
    inverse = jnp.where(seen, 1 / jnp.where(seen, lam, 1), 0)
    limit = (system.query_row / root) @ U @ (inverse * (U.T @ (root * jnp.asarray(y))))
    return KernelDescent(
        prediction=weights @ jnp.asarray(y),
        limit=limit,
        step_size=r,
        largest_step=system.largest_step,
        positive_semidefinite=system.positive_semidefinite,
        converges=system.positive_semidefinite & (r > 0) & (r < system.largest_step),
        asymmetry=system.asymmetry,
    )
