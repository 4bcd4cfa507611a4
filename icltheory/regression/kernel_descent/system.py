"""The kernel matrix of a prompt with its spectrum and stability conditions."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._checks import check_positive_int, check_shape
from icltheory._precision import widened
from icltheory._pytree import pytree, static_field
from icltheory._typing import Array, Bool, Float, Scalar
from icltheory.attention import kernel_matrix
from icltheory.attention.nonlinear import Kernel

__all__ = ["KernelSystem"]


@pytree
class KernelSystem:
    r"""A kernel matrix on the inputs of one prompt, as used by an attention layer.

    With ``"softmax"`` the layer applies :math:`P = D^{-1} K` with K the exponential
    kernel and :math:`D_j = \sum_{i \le N + 1} e^{x_j^\top x_i}`, the query's key
    included, as the mask ``"demos"`` has it. P is not symmetric, so that its recursion
    is gradient descent in no space of functions: ``approximate`` says so. It is similar
    to a symmetric matrix, and eigenvalues and closed form are those of P all the same.

    Args:
        matrix: What the layer applies to the labels, ``(N, N)``.
        query_row: The row of the query, ``(N,)``.
        eigenvalues: Of ``matrix``, ascending, ``(N,)``; of its symmetric part where a
            user's function is not symmetric.
        eigenvectors: Of :math:`D^{1/2}\,\text{matrix}\,D^{-1/2}`, ``(N, N)``.
        normalizers: D, ``(N,)``; ones but for softmax.
        asymmetry: Largest :math:`|K_{ij} - K_{ji}|` over the largest :math:`|K_{ij}|`.
        approximate: Whether rows are normalised, as softmax does.

    Example:
        >>> import jax.numpy as jnp
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
    approximate: bool = static_field(default=False)

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        X: Float[ArrayLike, "_N _d"],
        x_query: Float[ArrayLike, "_d"],
    ) -> "KernelSystem":
        """Computes the kernel system of a prompt.

        Args:
            kernel: ``"linear"``, ``"relu"``, ``"exp"``, ``"rbf"``, ``"softmax"``, or a
                symmetric function of two vectors.
            X: Inputs, ``(N, d)``.
            x_query: Query input, ``(d,)``.

        Returns:
            The system.
        """
        X, x_query = widened(X), widened(x_query)
        check_shape("X", X, ("N", "d"))
        check_positive_int("number of examples", X.shape[0])
        check_shape("x_query", x_query, (X.shape[1],))
        softmax = kernel == "softmax"
        points = jnp.concatenate([X, x_query[None]])
        values = kernel_matrix("exp" if softmax else kernel, points, points)
        D = jnp.sum(values, axis=1) if softmax else jnp.ones_like(values[0])
        root = jnp.sqrt(D[:-1])
        K = values[:-1, :-1]
        size = jnp.max(jnp.abs(K))
        symmetric = (K + K.T) / 2 / (root[:, None] * root[None])
        eigenvalues, eigenvectors = jnp.linalg.eigh(symmetric)
        return cls(
            matrix=K / D[:-1, None],
            query_row=values[-1, :-1] / D[-1],
            eigenvalues=eigenvalues,
            eigenvectors=eigenvectors,
            normalizers=D[:-1],
            asymmetry=jnp.max(jnp.abs(K - K.T)) / jnp.where(size > 0, size, 1),
            approximate=softmax,
        )

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
