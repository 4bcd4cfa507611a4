"""The result of training linear attention on random covariances (Theorem 4.5)."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._noted import check_nonnegative, check_values
from icltheory._typing import Array, Float
from icltheory.regression._linalg import as_floats
from icltheory.regression.rates._spectrum import read_length
from icltheory.regression.risks._population import Count

__all__ = ["random_covariance_optimum"]


@calculator
def random_covariance_optimum(
    variances: Float[ArrayLike, "_T _d"],
    num_examples: Count,
    probabilities: Float[ArrayLike, "_T"] | None = None,
) -> Float[Array, "d d"]:
    r"""Optimum for prompts with random diagonal input covariances (Theorem 4.5).

    .. math:: \Gamma = \bigl(E\, G_t \Lambda_t^2\bigr)^{-1} E\, \Lambda_t^2, \qquad
        G_t = \Bigl(1 + \frac1N\Bigr) \Lambda_t + \frac{\mathrm{tr}\,\Lambda_t}{N} I,

    which is v U of the limit of the flow. A direction that no covariance has is given
    0. It is no longer the inverse of any covariance: prompts of one task are then not
    learnt however long they are.

    Args:
        variances: Diagonals of Lambda_1, ..., Lambda_T, (T, d).
        num_examples: Examples N >= 1; may be traced.
        probabilities: Of each covariance; equal if None. Their sum does not matter.

    Returns:
        Gamma, diagonal.

    Example:
        >>> Gamma = random_covariance_optimum(jnp.array([[1.0], [3.0]]), 2)
        >>> round(float(Gamma[0, 0]), 6)
        0.178571

    Source: Zhang, Frei and Bartlett (2024), Theorem 4.5.
    """
    check_shape("variances", variances, ("T", "d"))
    check_nonnegative("variances", variances)
    lam = as_floats(variances)[0]
    N = read_length("num_examples", num_examples, lam.dtype)
    weights = jnp.ones_like(lam[:, 0])
    if probabilities is not None:
        check_shape("probabilities", probabilities, (lam.shape[0],))
        check_nonnegative("probabilities", probabilities)
        check_values(
            "probabilities", probabilities, lambda p: p.any(), "a positive entry"
        )
        weights = jnp.asarray(probabilities, lam.dtype)
    G = (1 + 1 / N) * lam + jnp.sum(lam, axis=1, keepdims=True) / N
    target = jnp.sum(weights[:, None] * lam**2, axis=0)
    system = jnp.sum(weights[:, None] * G * lam**2, axis=0)
    return jnp.diag(jnp.where(system > 0, target / jnp.where(system > 0, system, 1), 0))
