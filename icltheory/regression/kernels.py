r"""Functional gradient descent in a kernel's function space, as attention performs it.

An attention layer that acts on the label row alone, :math:`y_j \leftarrow y_j - r
\sum_{i \le N} k(x_j, x_i)\, y_i`, makes one step of gradient descent on the squared
loss in the space of k: residuals stand in the labels, minus the prediction at the
query.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from icltheory import constructions
from icltheory._checks import Check, check_positive_int, check_shape
from icltheory._core import Record, calculator, widened
from icltheory._typing import Array, Bool, Float, Scalar
from icltheory.attention import (
    KernelAttentionStack,
    SoftmaxAttentionStack,
    kernel_matrix,
)
from icltheory.attention.nonlinear import Kernel

__all__ = [
    "KernelDescent",
    "KernelSystem",
    "descent_weights",
    "functional_descent",
    "gaussian_process_risk",
    "kernel_descent",
    "kernel_descent_stack",
    "kriging_risk",
]


class KernelSystem(Record):
    r"""A kernel matrix on the inputs of one prompt, as used by an attention layer.

    With ``"softmax"`` the layer applies :math:`P = D^{-1} K` with K the exponential
    kernel and :math:`D_j = \sum_{i \le N + 1} e^{x_j^\top x_i}`, the query's key
    included. P is not symmetric, so that its recursion is gradient descent in no space
    of functions: ``approximate`` says so.

    Args:
        eigenvalues: Of ``matrix``, ascending; of its symmetric part where a user's
            function is not symmetric.
        eigenvectors: Of :math:`D^{1/2}\,\text{matrix}\,D^{-1/2}`, D the normalizers.
        asymmetry: Largest :math:`|K_{ij} - K_{ji}|` over the largest :math:`|K_{ij}|`.

    Example:
        >>> X = jnp.array([[1.0], [-2.0]])
        >>> relu = KernelSystem.of("relu", X, jnp.ones(1))
        >>> relu.matrix.tolist(), float(relu.largest_step)
        ([[1.0, 0.0], [0.0, 4.0]], 0.5)

    Source: Cheng et al. (2024).
    """

    matrix: Float[Array, "N N"]
    query_row: Float[Array, " N"]
    eigenvalues: Float[Array, " N"]
    eigenvectors: Float[Array, "N N"]
    normalizers: Float[Array, " N"]
    asymmetry: Scalar
    approximate: bool = eqx.field(static=True, default=False)

    @classmethod
    def of(cls, kernel: Kernel, X: Any, x_query: Any) -> "KernelSystem":
        """The system of a prompt with inputs ``(N, d)`` and query ``(d,)``.

        ``kernel`` is ``"linear"``, ``"relu"``, ``"exp"``, ``"rbf"``, ``"softmax"``, or
        a symmetric function of two vectors.
        """
        return _system(kernel, X, x_query)

    @property
    def cutoff(self) -> Scalar:
        """Largest eigenvalue that rounding alone can produce."""
        eps = jnp.finfo(self.eigenvalues.dtype).eps
        return len(self.eigenvalues) * eps * jnp.max(jnp.abs(self.eigenvalues))

    @property
    def positive_semidefinite(self) -> Bool[Array, ""]:
        """Whether no eigenvalue is negative, up to rounding."""
        return self.eigenvalues[0] >= -self.cutoff

    @property
    def largest_step(self) -> Scalar:
        r"""Steps below :math:`2 / \lambda_{\max}` converge, if none is negative."""
        return 2 / self.eigenvalues[-1]


@calculator(static=("kernel",))
def _system(kernel, X, x_query):
    X, x_query = widened(X), widened(x_query)
    check_shape("X", X, ("N", "d"))
    check_positive_int("number of examples", X.shape[0])
    check_shape("x_query", x_query, (X.shape[1],))
    softmax = kernel == "softmax"
    points = jnp.concatenate([X, x_query[None]])
    values = kernel_matrix("exp" if softmax else kernel, points, points)
    D = jnp.sum(values, axis=1) if softmax else jnp.ones_like(values[0])
    root, K = jnp.sqrt(D[:-1]), values[:-1, :-1]
    size = jnp.max(jnp.abs(K))
    symmetric = (K + K.T) / 2 / (root[:, None] * root[None])
    eigenvalues, eigenvectors = jnp.linalg.eigh(symmetric)
    return KernelSystem(
        matrix=K / D[:-1, None],
        query_row=values[-1, :-1] / D[-1],
        eigenvalues=eigenvalues,
        eigenvectors=eigenvectors,
        normalizers=D[:-1],
        asymmetry=jnp.max(jnp.abs(K - K.T)) / jnp.where(size > 0, size, 1),
        approximate=softmax,
    )


@calculator(static=("num_steps",))
def functional_descent(
    system: KernelSystem, y: Any, step_size: Any, num_steps: int
) -> Float[Array, " T"]:
    r"""Predictions f_0, ..., f_L along functional gradient descent, step by step.

    .. math:: f_{l+1} = f_l + r \sum_{i \le N} (y_i - f_l(x_i))\, k(\cdot, x_i) ,
              \qquad f_0 = 0 .

    Example:
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


@calculator(depths=Check(lambda depth: depth >= 0, "a value >= 0"))
def descent_weights(
    system: KernelSystem, step_size: Any, depths: Any
) -> Float[Array, "T N"]:
    r"""Weights w of the prediction :math:`w^\top y` at each depth, in closed form.

    .. math::
        w_L^\top = k_q^\top h_L(K) , \qquad
        h_L(\lambda) = r \sum_{l < L} (1 - r \lambda)^l
                     = \frac{1 - (1 - r \lambda)^L}{\lambda} , \quad h_L(0) = r L ,

    which is :math:`k_q^\top K^{-1} (I - (I - r K)^L)` and holds for singular K too.
    ``depths`` are numbers of layers, ``(T,)``.

    Example:
        >>> one = KernelSystem.of("linear", jnp.array([[1.0]]), jnp.array([2.0]))
        >>> descent_weights(one, 0.5, jnp.array([0, 1, 3])).ravel().tolist()
        [0.0, 1.0, 1.75]

    Source: Cheng et al. (2024).
    """
    check_shape("depths", depths, ("T",))
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


class KernelDescent(Record):
    """Predictions of L layers; they ``converge`` for K >= 0 and r < 2 / lambda_max."""

    prediction: Float[Array, " T"]
    limit: Scalar
    converges: Bool[Array, ""]


@calculator
def kernel_descent(
    system: KernelSystem, y: Any, step_size: Any, depths: Any
) -> KernelDescent:
    r"""Predictions at given depths, with the conditions under which depth helps.

    .. math:: f_L = w_L^\top y , \qquad f_\infty = k_q^\top K^{+} y .

    Example:
        >>> X, y = jnp.array([[1.0], [-2.0]]), jnp.array([3.0, 4.0])
        >>> relu = KernelSystem.of("relu", X, jnp.ones(1))
        >>> found = kernel_descent(relu, y, 0.25, jnp.array([1, 1000]))
        >>> found.prediction.tolist(), float(found.limit), bool(found.converges)
        ([0.75, 3.0], 3.0, True)

    Source: Cheng et al. (2024).
    """
    check_shape("y", y, (len(system.normalizers),))
    r = jnp.asarray(step_size, system.matrix.dtype)
    weights = descent_weights(system, r, depths)
    lam, U = system.eigenvalues, system.eigenvectors
    root = jnp.sqrt(system.normalizers)
    seen = jnp.abs(lam) > system.cutoff
    inverse = jnp.where(seen, 1 / jnp.where(seen, lam, 1), 0)
    limit = (system.query_row / root) @ U @ (inverse * (U.T @ (root * y)))
    small = (r > 0) & (r < system.largest_step)
    return KernelDescent(weights @ y, limit, system.positive_semidefinite & small)


@calculator(compiled=False, static=("d_in", "kernel"))
def kernel_descent_stack(
    step_sizes: Any, d_in: int, kernel: Kernel
) -> KernelAttentionStack | SoftmaxAttentionStack:
    r"""Weights of L layers that take L steps of functional gradient descent.

    .. math::
        W_K = W_Q = (I \;\; 0) , \qquad
        W_V^t = - r_t \begin{pmatrix} 0 & 0 \\ 0 & 1 \end{pmatrix} ,

    with the mask ``"demos"`` and the tokens of ``constructions.join_tokens``. With
    ``"softmax"`` its steps are only roughly those of the exponential kernel.

    Example:
        >>> stack = kernel_descent_stack(jnp.full(3, 0.5), 1, "linear")
        >>> X, Y, x = jnp.array([[1.0]]), jnp.array([[3.0]]), jnp.array([2.0])
        >>> out = stack.apply(*constructions.join_tokens(X, Y, x))
        >>> constructions.read_prediction(out.h_query, 1)[1:].ravel().tolist()
        [3.0, 4.5, 5.25]

    Source: Cheng et al. (2024); von Oswald et al. (2023), Proposition 1.
    """
    linear = constructions.gradient_descent(step_sizes, d_in)
    if kernel == "softmax":
        weights = linear.W_V, linear.W_K, linear.W_Q
        return SoftmaxAttentionStack(*weights, d_scale=1)
    # A user's function sees no label slot.
    inputs = linear.W_K[:, :d_in]
    return KernelAttentionStack(linear.W_V, inputs, inputs, kernel)


@calculator
def gaussian_process_risk(weights: Any, covariance: Any) -> Float[Array, "*depths"]:
    r"""Risk of the prediction :math:`w^\top y` on a Gaussian process, given the inputs.

    .. math:: E (w^\top y - y_q)^2 = C_{qq} - 2 w^\top C_q + w^\top C w

    for weights ``(..., N)`` as :func:`descent_weights` has them, and the covariance of
    the labels and, last, of the query's, with their noise, ``(N + 1, N + 1)``.

    Example:
        >>> C = jnp.array([[1.0, 0.5], [0.5, 1.0]])
        >>> gaussian_process_risk(jnp.array([[0.0], [0.5]]), C).tolist()
        [1.0, 0.75]

    Source: Cheng et al. (2024), Gaussian-process data.
    """
    w, C = jnp.asarray(weights), jnp.asarray(covariance)
    check_shape("covariance", C, (w.shape[-1] + 1, w.shape[-1] + 1))
    square = jnp.sum((w @ C[:-1, :-1]) * w, axis=-1)
    return C[-1, -1] - 2 * (w @ C[:-1, -1]) + square


@calculator
def kriging_risk(covariance: Any) -> Scalar:
    r"""Least risk of any predictor on a Gaussian process (kriging), given the inputs.

    .. math:: C_{qq} - C_q^\top C^{-1} C_q

    for the covariance of the labels and, last, of the query's, which is regular.

    Example:
        >>> float(kriging_risk(jnp.array([[1.0, 0.5], [0.5, 1.0]])))
        0.75

    Source: Cheng et al. (2024), Bayes predictor of a Gaussian process.
    """
    C = jnp.asarray(covariance)
    check_shape("covariance", C, ("P", "P"))
    return C[-1, -1] - C[-1, :-1] @ jnp.linalg.solve(C[:-1, :-1], C[:-1, -1])
