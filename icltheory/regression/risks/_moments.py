"""The second moment of X'y, which depends on fourth moments of the inputs."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._checks import check_shape
from icltheory._noted import check_finite, check_values
from icltheory._typing import Array, Float
from icltheory.regression._linalg import einsum
from icltheory.regression.risks._population import Population

FourthMoment = Float[ArrayLike, "..."] | None

_NAME = "fourth_moment"


def label_moment(population: Population, k: Array, fourth: FourthMoment) -> Array:
    """E [X'y y'X] / k = E [x x' M x x'] + (k - 1) H M H + sigma^2 H."""
    H, M, noise_var, _ = population
    HMH = einsum("ij,jk,kl->il", H, M, H)
    if fourth is None:
        return (k + 1) * HMH + population.tau * H
    if jnp.ndim(fourth) < 2:
        return (k + 1) * HMH + population.tau * H + _excess(H, M, fourth)
    moments = jnp.asarray(fourth, H.dtype)
    _check_moments(moments, len(H))
    return einsum("ijkl,kl->ij", moments, M) + (k - 1) * HMH + noise_var * H


def _excess(H, M, kurtosis):
    """Correction to Gaussian moments for independent coordinates of given kurtosis."""
    kurtosis, variances = jnp.asarray(kurtosis, H.dtype), jnp.diagonal(H)
    if kurtosis.ndim == 1:
        check_shape(_NAME, kurtosis, (len(H),))
    check_finite(_NAME, kurtosis)
    check_values(_NAME, kurtosis, lambda entry: entry >= 1, "a kurtosis >= 1")
    off = jnp.max(abs(H - jnp.diag(variances))) / jnp.maximum(jnp.max(variances), 1e-30)
    expected = "(d, d, d, d) unless input_cov is diagonal"
    check_values(_NAME, off, lambda size: size <= 1e-6, expected, "a kurtosis")
    return jnp.diag((kurtosis - 3) * variances**2 * jnp.diagonal(M))


def _check_moments(moments, dim):
    check_shape(_NAME, moments, (dim,) * 4)
    check_finite(_NAME, moments)
    size = jnp.maximum(jnp.max(abs(moments)), 1e-30)
    for order in ((1, 0, 2, 3), (1, 2, 3, 0)):  # they generate all orders
        gap = jnp.max(abs(moments - jnp.transpose(moments, order))) / size
        expected = "symmetry in all axes (relative differences <= 1e-6)"
        check_values(_NAME, gap, lambda g: g <= 1e-6, expected)
    diagonal = jnp.einsum("iijj->ij", moments) / size
    expected = "E x_i^2 x_j^2 >= 0"
    check_values(_NAME, diagonal, lambda entry: entry >= -1e-6, expected)
