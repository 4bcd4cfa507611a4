"""The best single step of one prompt length, used at another (Wu et al., Section 5)."""

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._noted import check_count
from icltheory._pytree import pytree
from icltheory._typing import Scalar
from icltheory.regression.ltb import minimal_risk
from icltheory.regression.population import LinearPopulation
from icltheory.regression.rates._spectrum import Spectrum, over, read_length, share
from icltheory.regression.risks._population import Count

__all__ = ["LengthTransfer", "length_transfer"]


@pytree
class LengthTransfer:
    r"""Risk of a preconditioner tuned for N examples when it receives M.

    .. math:: R_M(\Gamma^*_N) = \min R_M + \mathrm{excess}.

    Args:
        risk: R_M(Gamma*_N).
        minimal_risk: min R_M.
        excess: Their difference, 0 at N = M.
        rate: The order of R_M(Gamma*_N) - sigma^2.
        signal_to_noise: tr(H Psi) / sigma^2, which the rate wants bounded; infinite
            without noise.

    Returns:
        A frozen pytree.

    Example:
        >>> float(length_transfer(LinearPopulation.isotropic(3, 0.5), 4, 4).excess)
        0.0

    Source: Wu, Zou, Chen, Braverman, Gu and Bartlett (2024), Section 5.
    """

    risk: Scalar
    minimal_risk: Scalar
    excess: Scalar
    rate: Scalar
    signal_to_noise: Scalar


@calculator
def length_transfer(
    problem: LinearPopulation, train_length: Count, test_length: Count
) -> LengthTransfer:
    r"""Risk with M examples of the optimum for N, exactly and up to constants.

    .. math:: R_M(\Gamma^*_N) - \min R_M = \sum_i \phi_i^2\, \omega_{i,M}
        \Bigl(\frac{1}{\omega_{i,N}} - \frac{1}{\omega_{i,M}}\Bigr)^2, \qquad
        \omega_{i,n} = \frac{(n + 1) \phi_i + \tau}{n},

    .. math:: R_M(\Gamma^*_N) - \sigma^2 \asymp \sum_i \min\{\mu_M, \phi_i\}
        + (\mu_M - \mu_N)^2 \sum_i \min\Bigl\{\frac{\phi_i}{\mu_N^2}, \frac{1}{\phi_i}
        \Bigr\} \min\Bigl\{\frac{\phi_i}{\mu_M}, 1\Bigr\}, \qquad
        \mu_n = \frac{\sigma^2}{n},

    with phi_i the eigenvalues of H^{1/2} Psi H^{1/2}: psi^2 times those of H for the
    paper's prior w ~ N(0, psi^2 I). Any prior mean is that of the start, which is 0 in
    the paper. The equality is exact. The order supposes tr(H Psi) at most a constant
    times sigma^2; its constants are not proved here, over 300 spectra with
    tr(H Psi) <= sigma^2 the ratio of the sides lay between 0.28 and 2.0.

    Args:
        problem: The population (H, beta*, Psi, sigma^2), with tau > 0.
        train_length: Examples N >= 1 that Gamma*_N is the best for; may be traced.
        test_length: Examples M >= 1 of the prompts it is used on; may be traced.

    Returns:
        The risk, the least risk at M, their difference, and the rate.

    Example:
        >>> moved = length_transfer(LinearPopulation.isotropic(5), 20, 40)
        >>> round(float(moved.risk), 4), round(float(moved.minimal_risk), 4)
        (0.7101, 0.6522)

    Source: Wu et al. (2024), Section 5.
    """
    check_count("test_length", test_length, 1)
    spectrum = Spectrum.of(problem, test_length)
    phi, tau, noise_var = spectrum.phi, spectrum.tau, spectrum.noise_var
    M, N = spectrum.M, read_length("train_length", train_length, phi.dtype)
    omega_N, omega_M = (((n + 1) * phi + tau) / n for n in (N, M))
    # 1 / omega_N - 1 / omega_M, whose numerator is a multiple of 1 / M - 1 / N.
    moved = (1 / M - 1 / N) * (phi + tau) / (omega_N * omega_M)
    excess = jnp.sum(omega_M * (phi * moved) ** 2)
    least = minimal_risk(problem, test_length)
    level_M, level_N = noise_var / M, noise_var / N
    # (mu_M - mu_N)^2 min{phi / mu_N^2, 1 / phi}, which is finite without noise.
    tilt = (N / M - 1) ** 2 * phi * share(level_N, jnp.maximum(level_N, phi)) ** 2
    seen = jnp.where(phi > 0, share(jnp.minimum(phi, level_M), level_M), 0)
    return LengthTransfer(
        risk=least + excess,
        minimal_risk=least,
        excess=excess,
        rate=jnp.sum(jnp.minimum(level_M, phi)) + jnp.sum(tilt * seen),
        signal_to_noise=over(spectrum.signal, noise_var),
    )
