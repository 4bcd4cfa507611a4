"""Rates of the Bayes risk and of the best gradient step, with explicit constants."""

import math
from typing import Any

import jax.numpy as jnp

from icltheory._checks import nonnegative, scalar
from icltheory._core import Record, calculator
from icltheory._typing import Array, Bool, Scalar
from icltheory.regression._block_moments import OF_POPULATION
from icltheory.regression._linalg import quotient, symmetric_root
from icltheory.regression.population import LinearPopulation

__all__ = ["RiskBounds", "LikelyBounds", "Rates", "rates"]

# From the proof: 1 + 4 c + 8 log 9 + 8 bounds the noise from the tail of w.
_BASE = 4 * (9 + 8 * math.log(9))


class RiskBounds(Record):
    """A lower and an upper bound on a risk."""

    lower: Scalar
    upper: Scalar


class LikelyBounds(Record):
    """Bounds on the Bayes risk given drawn inputs, and how likely they hold.

    ``lower`` holds with ``lower_probability`` at least, for any c, and both with
    ``probability``. Where ``lower`` holds, (R_min - sigma^2) / (R(X) - sigma^2) is at
    most ``ratio`` = 3 (1 + 2c).
    """

    lower: Scalar
    upper: Scalar
    lower_probability: Scalar
    probability: Scalar
    ratio: Scalar


class Rates(Record):
    r"""Bounds on the best GD-beta and on Bayes by one sum over directions.

    Args:
        effective_dimension: D_eff, directions that M examples separate from noise.
        threshold_sum: S.
        constant: c; infinite for no noise.
        holds: Whether tr(H Psi) <= c sigma^2, as the upper bounds with c suppose.
        best_step: Bounds on R_min, the risk of the best GD-beta and LTB.
        average: Bounds on the average Bayes risk E R(X).
        sandwich: Bounds on it at any signal-to-noise ratio; the upper one is R_min.
        competitive_ratio: Bound on (R_min - sigma^2) / (E R(X) - sigma^2).
        likely: Bounds on the Bayes risk R(X) of drawn inputs.
    """

    effective_dimension: Scalar
    threshold_sum: Scalar
    constant: Scalar
    holds: Bool[Array, ""]
    best_step: RiskBounds
    average: RiskBounds
    sandwich: RiskBounds
    competitive_ratio: Scalar
    likely: LikelyBounds


@calculator(**OF_POPULATION, constant=scalar & nonnegative)
def rates(
    population: LinearPopulation, num_examples: Any, *, constant: Any = None
) -> Rates:
    r"""Rates of the best gradient step and of Bayes, with explicit constants.

    With phi_i the eigenvalues of H^{1/2} Psi H^{1/2}, tau = sum_i phi_i + sigma^2 and

    .. math:: D_{eff} = \sum_i \min\{1, M \phi_i / \sigma^2\}, \qquad
        S = \sum_i \min\{\phi_i, \sigma^2 / M\} = \sigma^2 D_{eff} / M, \qquad
        \mathrm{tr}(H \Psi) \le c\, \sigma^2,

    .. math::
        \tfrac13 S &\le R_{\min} - \sigma^2 \le (1 + 2c)\, S, \\
        \tfrac12 S &\le E_X R(X) - \sigma^2 \le (1 + 2c)\, S, \\
        \sum_i \frac{\phi_i \sigma^2}{\sigma^2 + M \phi_i}
        &\le E_X R(X) - \sigma^2 \le R_{\min} - \sigma^2
        = \sum_i \frac{\phi_i (\phi_i + \tau)}{(M + 1) \phi_i + \tau}, \\
        \frac{R_{\min} - \sigma^2}{E_X R(X) - \sigma^2} &\le
        1 + \frac{\tau - \sigma^2 + \phi_1}{\sigma^2}, \\
        \tfrac13 S &\le R(X) - \sigma^2 \le (36 + 32 \log 9 + 16 c)\, S .

    Without ``constant``, c is tr(H Psi) / sigma^2. In the last line the left side holds
    with a probability over the inputs X of at least 1 - p, p = e^{-M (1 - log 2) / 2},
    for any c, and both with 1 - p - e^{-M} - e^{-M / 32}. The paper states orders; the
    constants are proved on the page "Flows, rates and related results". On drawn X,
    with c between 0.01 and 3.2, (R(X) - sigma^2) / S lay between 0.17 and 4.9.

    Example:
        >>> found = rates(LinearPopulation.isotropic(2, 4.0), 8)
        >>> round(float(found.best_step.lower), 6), float(found.best_step.upper)
        (4.333333, 6.0)
        >>> float(found.average.lower), float(found.average.upper)
        (4.5, 6.0)
        >>> found = rates(LinearPopulation.isotropic(2, 1.0), 3)
        >>> float(found.sandwich.lower), float(found.competitive_ratio)
        (1.5, 4.0)

    Source: Zhang, Wu and Bartlett (2024), Lemma 6.1 and Corollary 6.2; Tsigler and
    Bartlett (2023); Davidson and Szarek (2001), Theorem II.13.
    """
    phi, noise_var = eigenvalues(population), jnp.asarray(population.noise_var)
    signal, M = jnp.sum(phi), jnp.asarray(num_examples, phi.dtype)
    tau, strength = signal + noise_var, M * phi
    part = quotient(jnp.minimum(strength, noise_var), noise_var, 1)
    dimension = jnp.sum(jnp.where(strength > 0, part, 0))
    allowed = signal
    if constant is not None:
        allowed = jnp.asarray(constant, signal.dtype) * noise_var
    # c S = c sigma^2 D / M, which is also finite without noise.
    total, scaled = noise_var * dimension / M, allowed * dimension / M
    upper = noise_var + total + 2 * scaled
    bayes = jnp.sum(phi * quotient(noise_var, noise_var + strength, 1))
    best = jnp.sum(phi * (phi + tau) / ((M + 1) * phi + tau))
    missed = jnp.exp(-M * (1 - math.log(2)) / 2)
    smallest = quotient(signal, noise_var, jnp.inf)
    return Rates(
        effective_dimension=dimension,
        threshold_sum=total,
        constant=smallest if constant is None else jnp.asarray(constant, signal.dtype),
        holds=signal <= allowed,
        best_step=RiskBounds(noise_var + total / 3, upper),
        average=RiskBounds(noise_var + total / 2, upper),
        sandwich=RiskBounds(noise_var + bayes, noise_var + best),
        competitive_ratio=1 + quotient(signal + jnp.max(phi), noise_var, jnp.inf),
        likely=LikelyBounds(
            lower=noise_var + total / 3,
            upper=noise_var + _BASE * total + 16 * scaled,
            lower_probability=1 - missed,
            probability=jnp.maximum(1 - missed - jnp.exp(-M) - jnp.exp(-M / 32), 0),
            ratio=3 * (1 + 2 * quotient(allowed, noise_var, jnp.inf)),
        ),
    )


def eigenvalues(population: LinearPopulation) -> Array:
    """Eigenvalues of Psi^{1/2} H Psi^{1/2}, descending.

    Those below d eps times the largest count as 0.
    """
    H, root = population.input_cov, symmetric_root(population.task_cov)
    values = jnp.linalg.eigvalsh(root.T @ H @ root)[::-1]
    cutoff = population.dim * jnp.finfo(H.dtype).eps * jnp.max(jnp.abs(values))
    return jnp.where(values > cutoff, values, 0)
