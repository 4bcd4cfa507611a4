"""Bounds on the average Bayes risk: the exact sandwich and the two-sided rate."""

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._noted import check_values
from icltheory._pytree import pytree
from icltheory._typing import Scalar
from icltheory.regression import optima
from icltheory.regression._linalg import Number
from icltheory.regression.blocks import LTB
from icltheory.regression.population import LinearPopulation
from icltheory.regression.rates._spectrum import Spectrum, over, share
from icltheory.regression.rates.dimension import TwoSidedRate, two_sided
from icltheory.regression.risks._population import Count

__all__ = ["Sandwich", "risk_rate", "sandwich"]


@pytree
class Sandwich:
    r"""Bounds on the average Bayes risk that hold at any signal-to-noise ratio.

    .. math:: L \le E_X R(X) \le R_{min}, \qquad
        \frac{R_{min} - \sigma^2}{E_X R(X) - \sigma^2} \le
        1 + \frac{\mathrm{tr}\,\Phi + \phi_1}{\sigma^2}.

    Args:
        lower: L.
        upper: R_min, the risk of the best GD-beta.
        competitive_ratio: The right-hand side of the second inequality: by how much the
            best GD-beta can lose against Bayes. Infinite without noise.

    Returns:
        A frozen pytree.

    Example:
        >>> bounds = sandwich(LinearPopulation.isotropic(2, 1.0), 3)
        >>> float(bounds.lower), round(float(bounds.upper), 6)
        (1.5, 2.142857)

    Source: Zhang, Wu and Bartlett (2024), Section 6.
    """

    lower: Scalar
    upper: Scalar
    competitive_ratio: Scalar


@calculator
def sandwich(problem: LinearPopulation, num_examples: Count) -> Sandwich:
    r"""Bounds on the average Bayes risk, from Jensen and from the best GD-beta.

    .. math:: \sum_i \frac{\phi_i \sigma^2}{\sigma^2 + M \phi_i}
        \le E_X R(X) - \sigma^2 \le
        \sum_i \frac{\phi_i (\phi_i + \tau)}{(M + 1) \phi_i + \tau},

    with phi_i the eigenvalues of H^{1/2} Psi H^{1/2} and tau their sum plus sigma^2.
    On the left the inverse is operator convex; on the right stands one estimator. The
    inequalities are this library's reading of Section 6, not numbered in the paper.

    Args:
        problem: The population (H, beta*, Psi, sigma^2), with tau > 0.
        num_examples: Examples M >= 1; may be traced.

    Returns:
        The two bounds, which count the query's noise, and the competitive ratio.

    Example:
        >>> float(sandwich(LinearPopulation.isotropic(2, 1.0), 3).competitive_ratio)
        4.0

    Source: Zhang, Wu and Bartlett (2024), Section 6.
    """
    spectrum = Spectrum.of(problem, num_examples)
    expected = "tau = tr(H Psi) + noise_var > 0"
    check_values("problem", spectrum.tau, lambda tau: tau > 0, expected)
    upper = optima.optimum(LTB, problem, num_examples).risk
    phi, noise_var = spectrum.phi, spectrum.noise_var
    ratio = 1 + over(spectrum.signal + jnp.max(phi), noise_var)
    left = phi * share(noise_var, noise_var + spectrum.M * phi)
    return Sandwich(noise_var + jnp.sum(left), upper, ratio)


@calculator
def risk_rate(
    problem: LinearPopulation, num_examples: Count, *, constant: Number | None = None
) -> TwoSidedRate:
    r"""The rate of the average Bayes risk (Lemma 6.1, second part), with constants.

    .. math:: \tfrac12 \sum_i \min\{\phi_i, \sigma^2 / M\}
        \le E_X R(X) - \sigma^2 \le
        (1 + 2c) \sum_i \min\{\phi_i, \sigma^2 / M\}
        \quad\text{if}\quad \mathrm{tr}(H \Psi) \le c\, \sigma^2.

    Both follow from ``sandwich``, hence hold on average. The paper states the rate for
    R(X) with probability at least 1 - exp(-Omega(M)) over X, by Tsigler and Bartlett's
    bounds on ridge: ``likely_rate`` has that form, with larger constants. On drawn X,
    with c between 0.01 and 3.2, the ratios seen lay between 0.17 and 4.9.

    Args:
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1; may be traced.
        constant: c >= 0; the smallest that fits, tr(H Psi) / sigma^2, if None.

    Returns:
        Bounds on the average risk, which count the query's noise, and whether the
        condition holds.

    Example:
        >>> rate = risk_rate(LinearPopulation.isotropic(2, 4.0), 8)
        >>> float(rate.lower), float(rate.upper), float(rate.constant)
        (4.5, 6.0, 0.5)

    Source: Zhang, Wu and Bartlett (2024), Lemma 6.1; Tsigler and Bartlett (2023).
    """
    return two_sided(problem, num_examples, constant, 1 / 2)
