"""The rate of the Bayes risk given the inputs, with high probability (Lemma 6.1)."""

import math

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._noted import check_scalar
from icltheory._pytree import pytree
from icltheory._typing import Array, Bool, Scalar
from icltheory.regression._linalg import Number
from icltheory.regression.population import LinearPopulation
from icltheory.regression.rates._spectrum import Spectrum, over
from icltheory.regression.risks._population import Count

__all__ = ["LikelyRate", "likely_rate"]

# From the proof: 1 + 4 c + 8 log 9 + 8 bounds the noise from the tail of w.
_BASE = 4 * (9 + 8 * math.log(9))


@pytree
class LikelyRate:
    r"""Bounds on the Bayes risk given drawn inputs, and how likely they hold.

    Args:
        lower: sigma^2 + S / 3, S the sum of min(phi_i, sigma^2 / M).
        upper: sigma^2 + (4 (9 + 8 log 9) + 16 c) S, the first number being 106.3.
        lower_probability: Least probability with which ``lower`` holds; for any c.
        probability: Least probability with which both hold; below 0 where M is small.
        ratio: (R_min - sigma^2) / (R(X) - sigma^2) is at most this where ``lower``
            holds: 3 (1 + 2c), of the best GD-beta and LTB against Bayes.
        holds: Whether the condition on c holds, under which ``upper`` is proved.

    Returns:
        A frozen pytree.

    Example:
        >>> found = likely_rate(LinearPopulation.isotropic(2, 4.0), 100)
        >>> round(float(found.lower_probability), 6), round(float(found.ratio), 6)
        (1.0, 6.0)

    Source: Zhang, Wu and Bartlett (2024), Lemma 6.1 and Corollary 6.2.
    """

    lower: Scalar
    upper: Scalar
    lower_probability: Scalar
    probability: Scalar
    ratio: Scalar
    holds: Bool[Array, ""]


@calculator
def likely_rate(
    problem: LinearPopulation, num_examples: Count, *, constant: Number | None = None
) -> LikelyRate:
    r"""Two-sided bounds on the Bayes risk given the inputs, with their probability.

    .. math:: \tfrac13 S \le R(X) - \sigma^2 \le (36 + 32 \log 9 + 16 c)\, S , \qquad
        S = \sum_i \min\{\phi_i, \sigma^2 / M\} , \qquad
        \mathrm{tr}(H \Psi) \le c\, \sigma^2 ,

    the left side with probability at least :math:`1 - e^{-M (1 - \log 2) / 2}` over the
    inputs X and for any c, both with :math:`1 - e^{-M (1 - \log 2) / 2} - e^{-M} -
    e^{-M / 32}`. So the risk of the best GD-beta, which is at most sigma^2 + (1 + 2c)
    S, is of the Bayes order on such X. The paper states the order by citing Tsigler
    and Bartlett's bounds on ridge; the constants and their proof are this library's,
    on the documentation page "Flows, rates and related results". They are far from
    those of simulations.

    Args:
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1; may be traced.
        constant: c >= 0; the smallest that fits, tr(H Psi) / sigma^2, if None.

    Returns:
        Bounds on R(X), which counts the query's noise, and the probabilities.

    Example:
        >>> found = likely_rate(LinearPopulation.isotropic(2, 4.0), 100)
        >>> round(float(found.lower), 4), bool(found.holds)
        (4.0267, True)

    Source: Zhang, Wu and Bartlett (2024), Lemma 6.1, second part; Davidson and Szarek
    (2001), Theorem II.13.
    """
    spectrum = Spectrum.of(problem, num_examples)
    noise_var, signal, M = spectrum.noise_var, spectrum.signal, spectrum.M
    allowed = signal
    if constant is not None:
        check_scalar("constant", constant)
        allowed = jnp.asarray(constant, signal.dtype) * noise_var
    level = spectrum.effective_dimension / M
    missed = jnp.exp(-M * (1 - math.log(2)) / 2)
    return LikelyRate(
        lower=noise_var + noise_var * level / 3,
        upper=noise_var + (_BASE * noise_var + 16 * allowed) * level,
        lower_probability=1 - missed,
        probability=1 - missed - jnp.exp(-M) - jnp.exp(-M / 32),
        ratio=3 * (1 + 2 * over(allowed, noise_var)),
        holds=signal <= allowed,
    )
