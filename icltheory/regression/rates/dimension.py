"""The effective dimension and the rate of the best GD-beta (Corollary 6.2)."""

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._noted import check_scalar
from icltheory._pytree import pytree
from icltheory._typing import Array, Bool, Float, Scalar
from icltheory.regression._linalg import Number
from icltheory.regression.population import LinearPopulation
from icltheory.regression.rates._spectrum import Spectrum, over
from icltheory.regression.risks._population import Count

__all__ = ["TwoSidedRate", "effective_dimension", "optimal_risk_rate"]


@pytree
class TwoSidedRate:
    r"""Bounds on a risk by one sum over directions, up to constants.

    .. math:: S = \sum_i \min\{\phi_i, \sigma^2 / M\} = \sigma^2 D_{eff} / M, \qquad
        \mathrm{tr}(H \Psi) \le c\, \sigma^2.

    Args:
        lower: sigma^2 plus a constant times S.
        upper: sigma^2 plus (1 + 2c) S.
        threshold_sum: S.
        constant: c; infinite for no noise.
        holds: Whether the condition on c, under which ``upper`` is proved, holds.

    Returns:
        A frozen pytree.

    Example:
        >>> problem = LinearPopulation.isotropic(2, 1.0)
        >>> bool(optimal_risk_rate(problem, 3, constant=1.0).holds)
        False

    Source: Zhang, Wu and Bartlett (2024), Corollary 6.2.
    """

    lower: Scalar
    upper: Scalar
    threshold_sum: Scalar
    constant: Scalar
    holds: Bool[Array, ""]


@calculator
def effective_dimension(
    problem: LinearPopulation, num_examples: Count
) -> Float[Array, ""]:
    r"""Effective number of directions that M examples separate from noise (Section 6).

    .. math:: D_{eff} = \sum_i \min\{1, M \phi_i / \sigma^2\}

    with phi_i the eigenvalues of H^{1/2} Psi H^{1/2}; without noise the rank. The
    paper's own name and symbol for the threshold sigma^2 / M are not known to us.

    Args:
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1; may be traced.

    Returns:
        The effective dimension.

    Example:
        >>> Psi = jnp.diag(jnp.array([1.0, 0.01, 0.0]))
        >>> problem = LinearPopulation(jnp.eye(3), jnp.zeros(3), Psi, 1.0)
        >>> round(float(effective_dimension(problem, 20)), 6)
        1.2

    Source: Zhang, Wu and Bartlett (2024), Corollary 6.2; Wu, Zou, Chen, Braverman, Gu
    and Bartlett (2024), Section 5.
    """
    return Spectrum.of(problem, num_examples).effective_dimension


@calculator
def optimal_risk_rate(
    problem: LinearPopulation, num_examples: Count, *, constant: Number | None = None
) -> TwoSidedRate:
    r"""The rate of the best GD-beta and LTB (Corollary 6.2), with explicit constants.

    .. math:: \tfrac13 \sum_i \min\{\phi_i, \sigma^2 / M\} \le R_{min} - \sigma^2
        \le (1 + 2c) \sum_i \min\{\phi_i, \sigma^2 / M\}
        \quad\text{if}\quad \mathrm{tr}(H \Psi) \le c\, \sigma^2.

    By ``bayes.risk_rate`` this is the Bayes rate: one step of gradient descent is
    optimal up to constants while the signal is at most c times the noise. The
    constants are this library's; the paper states the order.

    Args:
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1; may be traced.
        constant: c >= 0; the smallest that fits, tr(H Psi) / sigma^2, if None.

    Returns:
        Bounds on R_min, which count the query's noise, and whether the condition holds.

    Example:
        >>> rate = optimal_risk_rate(LinearPopulation.isotropic(2, 4.0), 8)
        >>> round(float(rate.lower), 6), float(rate.upper)
        (4.333333, 6.0)

    Source: Zhang, Wu and Bartlett (2024), Corollary 6.2.
    """
    return two_sided(problem, num_examples, constant, 1 / 3)


def two_sided(
    problem: LinearPopulation,
    num_examples: Count,
    constant: Number | None,
    below: float,
) -> TwoSidedRate:
    """Returns the two-sided rate whose lower constant is ``below``."""
    spectrum = Spectrum.of(problem, num_examples)
    noise_var, signal = spectrum.noise_var, spectrum.signal
    allowed = signal
    if constant is not None:
        check_scalar("constant", constant)
        allowed = jnp.asarray(constant, signal.dtype) * noise_var
    # (1 + 2c) S = (sigma^2 + 2 c sigma^2) D / M, which is also finite without noise.
    level = spectrum.effective_dimension / spectrum.M
    smallest = over(signal, noise_var)
    return TwoSidedRate(
        lower=noise_var + below * noise_var * level,
        upper=noise_var + (noise_var + 2 * allowed) * level,
        threshold_sum=noise_var * level,
        constant=smallest if constant is None else jnp.asarray(constant, signal.dtype),
        holds=signal <= allowed,
    )
