"""Ledoit-Wolf shrinkage of the noise covariance, computed from its spectrum."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._typing import Array, Float

__all__ = ["ledoit_wolf_intensity"]


@calculator
def ledoit_wolf_intensity(
    sample_eigenvalues: Float[ArrayLike, "*batch _N"],
    deviations: Float[ArrayLike, "*batch _N"],
    dim: Real[ArrayLike, "..."],
) -> Float[Array, "*batch"]:
    r"""Ledoit-Wolf shrinkage intensity for the sample covariance of N centred rows.

    .. math::
        \rho = \frac{\min(\beta^2, \delta^2)}{\delta^2} , \qquad
        \delta^2 = \frac{\|S\|_F^2 - d \mu^2}{d} , \qquad
        \beta^2 = \frac{\sum_i \|\tilde z_i\|^4 - N \|S\|_F^2}{N^2 d} , \qquad
        \mu = \operatorname{tr} S / d ,

    with :math:`S = \frac1N \sum_i \tilde z_i \tilde z_i^\top`. The shrunken covariance
    is :math:`(1 - \rho) S + \rho \mu 1`. Only N numbers of each kind are needed.

    Args:
        sample_eigenvalues: Eigenvalues of S, at most N of them not zero, ``(..., N)``.
        deviations: :math:`\|\tilde z_i\|^2`, ``(..., N)``.
        dim: Dimension d in which S is shrunk.

    Returns:
        :math:`\rho` in [0, 1], ``(...,)``; 1 where S is a multiple of the identity.

    Example:
        >>> import jax.numpy as jnp
        >>> z = jnp.array([[1.0, 0.0], [-1.0, 0.0]])
        >>> S = z.T @ z / 2
        >>> values = jnp.linalg.eigvalsh(S)
        >>> float(ledoit_wolf_intensity(values, jnp.sum(z**2, 1), 2))
        0.0

    Source: Ledoit and Wolf (2004), lemmas 3.2 to 3.4.
    """
    values, deviations = jnp.asarray(sample_eigenvalues), jnp.asarray(deviations)
    d, N = jnp.asarray(dim), deviations.shape[-1]
    square = jnp.sum(values**2, axis=-1)
    mu = jnp.sum(values, axis=-1) / d
    delta = (square - d * mu**2) / d
    beta = (jnp.sum(deviations**2, axis=-1) - N * square) / (N**2 * d)
    equal = delta <= 0
    ratio = jnp.clip(beta / jnp.where(equal, 1, delta), 0, 1)
    return jnp.where(equal, 1, ratio)
