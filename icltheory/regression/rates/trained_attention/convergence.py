"""Convergence speed of linear attention: the corrected Polyak-Lojasiewicz constant."""

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._noted import check_finite, check_positive, check_scalar, check_values
from icltheory._pytree import pytree
from icltheory._typing import Array, Bool, Scalar
from icltheory.regression._linalg import Matrix, Number, einsum
from icltheory.regression.rates.trained_attention._gain import gain, read_input_cov
from icltheory.regression.risks._population import Count

__all__ = ["Convergence", "convergence_constants"]


@pytree
class Convergence:
    r"""Constants along gradient flow from the paper's start.

    .. math:: |\nabla \ell(\theta_t)|^2 \ge \mu\, (\ell(\theta_t) - \min \ell), \qquad
        u_t \ge u_{min}, \qquad
        \ell(\theta_t) - \min \ell \le e^{-\mu t} (\ell(\theta_0) - \min \ell).

    Args:
        rate: mu.
        scale_floor: u_min, a lower bound on the value weight.
        holds: Whether the start is small enough for either: s^2 |G| sqrt(d) < 2.

    Returns:
        A frozen pytree.

    Example:
        >>> bool(convergence_constants(jnp.eye(1), 1, jnp.eye(1), 0.9).holds)
        False

    Source: Zhang, Frei and Bartlett (2024), Theorem 4.1 and its proof.
    """

    rate: Scalar
    scale_floor: Scalar
    holds: Bool[Array, ""]


@calculator
def convergence_constants(
    input_cov: Matrix, num_examples: Count, Theta: Matrix, scale: Number
) -> Convergence:
    r"""The Polyak-Lojasiewicz constant of the flow from the paper's start.

    .. math:: \mu = s^2 \frac{K_1}{K_2}, \quad
        K_1 = |\Lambda \Theta|_F^2\, (2 - \sqrt d\, s^2 |G|_{op}), \quad
        K_2 = \sqrt d\, |\Lambda|_{op}^2\, \mathrm{tr}(G^{-1} \Lambda^{-1})\,
        \mathrm{tr}(\Lambda^{-1}), \quad
        u_{min} = \sqrt{\frac{s^2 K_1}{2 \sqrt d\, |\Lambda|_{op}^2}}

    for the start W^{PV} = s [[0, 0], [0, 1]], W^{KQ} = s [[Theta Theta', 0], [0, 0]]
    with |Theta Theta'|_F = 1 and s^2 |G|_op sqrt(d) < 2, on half the squared error. The
    inverted constant s^2 K_2 / K_1, which is also in circulation, is false.

    Args:
        input_cov: Lambda, positive definite.
        num_examples: Examples N >= 1; may be traced.
        Theta: Shape of the start, |Theta Theta'|_F = 1, Lambda Theta not 0.
        scale: Size s of the start, positive.

    Returns:
        The constants, and whether the start is small enough for them.

    Example:
        >>> found = convergence_constants(jnp.eye(1), 1, jnp.eye(1), 0.5)
        >>> round(float(found.rate), 6), bool(found.holds)
        (0.9375, True)

    Source: Zhang, Frei and Bartlett (2024), Theorem 4.1 and its proof.
    """
    Lam = read_input_cov(input_cov, definite=True)
    dim = Lam.shape[0]
    check_shape("Theta", Theta, (dim, dim))
    check_finite("Theta", Theta)
    check_scalar("scale", scale)
    check_positive("scale", scale)
    Theta = jnp.asarray(Theta, Lam.dtype)
    size = jnp.sqrt(jnp.sum(einsum("ij,kj->ik", Theta, Theta) ** 2))
    check_values(
        "Theta", size, lambda size: abs(size - 1) <= 1e-5, "|Theta Theta'|_F = 1"
    )
    s2 = jnp.asarray(scale, Lam.dtype) ** 2
    G = gain(Lam, num_examples)
    lam, g = jnp.linalg.eigvalsh(Lam), jnp.linalg.eigvalsh(G)  # in the same basis
    root = jnp.sqrt(jnp.asarray(dim, Lam.dtype))
    room = 2 - root * s2 * g[-1]
    K_1 = jnp.sum(einsum("ij,jk->ik", Lam, Theta) ** 2) * room
    K_2 = root * lam[-1] ** 2 * jnp.sum(1 / (g * lam)) * jnp.sum(1 / lam)
    floor = s2 * K_1 / (2 * root * lam[-1] ** 2)
    return Convergence(
        rate=s2 * K_1 / K_2,
        scale_floor=jnp.sqrt(jnp.maximum(floor, 0)),
        holds=room > 0,
    )
