"""Closed forms of the gap between LSA and LTB in special cases."""

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._typing import Array, Scalar
from icltheory.regression.ltb._moments import check_tau, read_length
from icltheory.regression.ltb._spectral import Whitened
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._population import Count

__all__ = ["scalar_gap", "small_mean_gap"]


@calculator
def small_mean_gap(problem: LinearPopulation, num_examples: Count) -> Scalar:
    r"""The gap between LSA and LTB for a small prior mean, to second order.

    .. math:: \inf_{LSA} R - \inf_{LTB} R = \sum_i \frac{m_i^2}
        {1 + h_i^\top D_i^{-1} h_i} + O(\|m\|^4), \quad
        h_i = \binom{a_i}{\tau}, \quad
        D_i = \begin{pmatrix} (a_i^2 + F) / M & 2 a_i \phi_i / M \\
        2 a_i \phi_i / M & \kappa' \end{pmatrix},

    in the eigenbasis of Phi, with a_i = phi_i / omega_i, F = sum a_i^2 and kappa' =
    2 tau^2 / M + 2 (1 + 2/M) tr(Phi^2). It needs rank(Phi) >= 2, or d = 1. For rank one
    and d > 1 there are other best LTBs of mean 0 (Theorem 5.3) near which the gap is
    smaller, and this is an upper bound to second order. Derivatives in H and Psi need
    distinct eigenvalues.

    Args:
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1.

    Returns:
        The second-order term.

    Example:
        >>> task = LinearPopulation(jnp.eye(2), 0.01 * jnp.ones(2), jnp.eye(2), 0.0)
        >>> round(1e4 * float(small_mean_gap(task, 4)), 4)
        0.7797

    Source: Zhang, Wu and Bartlett (2024), Theorem 4.1 (its setting; the formula is not
    the paper's).
    """
    white = Whitened.of(problem)
    check_tau(white.tau)
    M = read_length(num_examples, white.phi.dtype)
    phi, tau = white.phi, white.tau
    a = phi * M / ((M + 1) * phi + tau)
    kappa = 2 * tau**2 / M + 2 * (1 + 2 / M) * white.square
    corner, side = (a**2 + jnp.sum(a**2)) / M, 2 * a * phi / M
    return jnp.sum(white.m**2 / (1 + _quadratic(a, tau, corner, side, kappa)))


@calculator
def scalar_gap(problem: LinearPopulation, num_examples: Count) -> tuple[Scalar, Scalar]:
    r"""The gap between LSA and LTB for d = 1, and where it is exact.

    .. math:: \inf_{LSA} R - \inf_{LTB} R = \frac{m^2}{1 + h^\top D^{-1} h}
        = \frac{m^2}{1 + M \theta(\phi)}, \quad h = \binom1\tau, \quad
        D = \begin{pmatrix} 2/M & 2\phi/M \\ 2\phi/M & \kappa' \end{pmatrix},
        \qquad |m| \le m_c = \frac{\phi / (2 \omega)}{\sqrt{z_1 z_2}}, \quad
        z = \frac{D^{-1} h}{1 + h^\top D^{-1} h},

    with m = H^{1/2} beta*, the instance bound of Theorem 4.1, tight here.

    Args:
        problem: A population with d = 1.
        num_examples: Examples M >= 1.

    Returns:
        The gap, and the largest |H^{1/2} beta*| for which it is that: infinite where
        z_1 z_2 is not positive.

    Example:
        >>> task = LinearPopulation(jnp.eye(1), 0.1 * jnp.ones(1), jnp.eye(1), 1.0)
        >>> gap, largest = scalar_gap(task, 10)
        >>> round(float(gap), 6), round(float(largest), 4)
        (0.001579, 1.9531)

    Source: Zhang, Wu and Bartlett (2024), Theorem 4.1 (its setting; the formula is not
    the paper's).
    """
    if problem.dim != 1:
        raise ValueError(f"problem: expected dimension 1, got {problem.dim}")
    white = Whitened.of(problem)
    check_tau(white.tau)
    M = read_length(num_examples, white.phi.dtype)
    phi, tau = white.phi[0], white.tau
    kappa = 2 * tau**2 / M + 2 * (1 + 2 / M) * phi**2
    corner, side = 2 / M, 2 * phi / M
    level = 1 + _quadratic(jnp.ones_like(phi), tau, corner, side, kappa)
    # The product z_1 z_2, by Cramer's rule.
    determinant = corner * kappa - side**2
    product = (kappa - side * tau) * (corner * tau - side) / (determinant * level) ** 2
    inner = product > 0
    omega = ((M + 1) * phi + tau) / M
    limit = phi / (2 * omega) / jnp.sqrt(jnp.where(inner, product, 1))
    return white.m[0] ** 2 / level, jnp.where(inner, limit, jnp.inf)


def _quadratic(a: Array, b: Array, corner: Array, side: Array, other: Array) -> Array:
    """Form h' D^{-1} h for h = (a, b); 0 / 0 counts as b^2 / other, its limit."""
    determinant = corner * other - side**2
    above = other * a**2 - 2 * side * a * b + corner * b**2
    singular = determinant <= 0
    return jnp.where(
        singular, b**2 / other, above / jnp.where(singular, 1, determinant)
    )
