"""Exact mean squared errors of linear smoothers on Gaussian processes."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._typing import Array, Float, Scalar

__all__ = ["gaussian_process_risk", "kriging_risk"]


@calculator
def gaussian_process_risk(
    weights: Float[ArrayLike, "*depths N"], covariance: Float[ArrayLike, "_P _P"]
) -> Float[Array, "*depths"]:
    r"""Mean squared error of the prediction :math:`w^\top y`, given the inputs.

    .. math:: E (w^\top y - y_q)^2 = C_{qq} - 2 w^\top C_q + w^\top C w .

    Args:
        weights: w at every depth, as :func:`descent_weights` has them.
        covariance: Covariance of the labels and, last, of the query's, with any noise,
            ``(N + 1, N + 1)``.

    Returns:
        Errors at every depth.

    Example:
        >>> import jax.numpy as jnp
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
def kriging_risk(covariance: Float[ArrayLike, "_P _P"]) -> Scalar:
    r"""Least error of any predictor, :math:`C_{qq} - C_q^\top C^{-1} C_q` (kriging).

    Args:
        covariance: Covariance of the labels and, last, of the query's, regular,
            ``(N + 1, N + 1)``.

    Returns:
        The error of kriging.

    Example:
        >>> import jax.numpy as jnp
        >>> float(kriging_risk(jnp.array([[1.0, 0.5], [0.5, 1.0]])))
        0.75

    Source: Cheng et al. (2024), Bayes predictor of a Gaussian process.
    """
    C = jnp.asarray(covariance)
    check_shape("covariance", C, ("P", "P"))
    return C[-1, -1] - C[-1, :-1] @ jnp.linalg.solve(C[:-1, :-1], C[:-1, -1])
