"""Excess risk over the best LTB, its gap to the best LSA, and rates of the risks."""

import math
from typing import Any

import jax.numpy as jnp

from icltheory._checks import count, nonnegative, scalar
from icltheory._core import Record, calculator
from icltheory._typing import Array, Bool, Scalar
from icltheory.regression._block_moments import (
    OF_POPULATION,
    Moments,
    Whitened,
    best_step,
    check_dim,
    excess_parts,
    of_population,
    weighted,
)
from icltheory.regression._linalg import quotient, symmetric_root
from icltheory.regression.gradient_blocks import parts_of
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors import LinearStep

__all__ = [
    "Excess",
    "Gap",
    "Rates",
    "excess",
    "gap",
    "rates",
    "scalar_gap",
    "small_mean_gap",
]


class Excess(Record):
    r"""Risk above that of the best LTB, in four parts; none is negative.

    In the whitened coordinates of ``EffectiveParameters.exact_risk``,

    .. math:: R - R_{\min} = \underbrace{\| \Omega^{1/2} (B - \Omega^{-1} \Phi) \|_F^2}
        _{\text{preconditioner}}
        + \underbrace{\| A^\top q + v \tau g - m \|^2 + v^2 \|g\|^2
        (\tfrac{2\tau^2}{N} + 2\,\mathrm{tr}\,\Phi^2)}_{\text{start}}
        + \underbrace{\tfrac1N \| A_{ij} q_k + 2 v \Phi_{ik} g_j \|_F^2}
        _{\text{fluctuation}}
        + \underbrace{\tfrac1N \|A^\top q\|^2}_{\text{drift}}.

    They are the paper's I, III (the wrong start, and reading y'y), II (cubic terms in
    the data) and IV (variance of the start that the values make).

    Source: Zhang, Wu and Bartlett (2024), Appendices B and D.
    """

    preconditioner: Scalar
    start: Scalar
    fluctuation: Scalar
    drift: Scalar

    @property
    def total(self) -> Scalar:
        """The excess risk."""
        return self.preconditioner + self.start + self.fluctuation + self.drift


@calculator(**OF_POPULATION | {"num_examples": count(0)})
def excess(model: Any, population: LinearPopulation, num_examples: Any) -> Excess:
    r"""Excess risk over the best LTB, with its own precision near the optimum.

    For a GD-beta the three last parts add up to :math:`b^\top Q(\Gamma)\, b`, the cost
    of the start b = beta - beta*, and the first is :math:`\mathrm{tr}(D^\top H D\,
    H^{1/2} \Omega H^{1/2})` with :math:`D = \Gamma - \Gamma^*`. The excess of a linear
    step over the best one is that on ``population.with_(task_mean=0 * mean,
    task_cov=population.second_moment)``. A model is a LinearStep, GDBeta, LSA, LTB or
    EffectiveParameters.

    Example:
        >>> from icltheory.regression import GDBeta
        >>> population = LinearPopulation(jnp.eye(2), jnp.ones(2), jnp.eye(2), 0.0)
        >>> found = excess(GDBeta(jnp.zeros(2), 0.5 * jnp.eye(2)), population, 3)
        >>> print(f"{found.start:.4f} {found.fluctuation:.4f} {found.drift:.4f}")
        0.5000 0.3333 0.1667
        >>> float(found.preconditioner), round(float(found.total), 4)
        (0.0, 1.0)

    Source: Zhang, Wu and Bartlett (2024), Appendices B, C and D.
    """
    parts = parts_of(model)
    check_dim(population, parts.dim)
    given = jnp.asarray(num_examples) > 0
    moments = Moments.of(population, jnp.maximum(num_examples, 1))
    H = moments.H
    Gamma, _ = best_step(H, moments.Psi, moments.noise_var, moments.M)
    B, *others = excess_parts(moments, parts)
    D = B - Gamma.T
    found = jnp.sum(D * (moments.H_Omega_H @ D @ H)), *others
    at_zero = 0, weighted(H, parts.c - moments.mean), 0, 0
    pairs = zip(found, at_zero, strict=True)
    return Excess(*(jnp.where(given, *pair) for pair in pairs))


class Gap(Record):
    r"""Bounds on inf LSA - inf LTB, the risk reduction by an MLP.

    .. math:: \texttt{lower\_proof\_route} \le \texttt{lower} \le
        \texttt{lower\_instance} \le \inf_{LSA} R - \inf_{LTB} R \le \texttt{upper}.

    With phi_i, m_i in the eigenbasis of Phi = H^{1/2} Psi H^{1/2}, m = H^{1/2} beta*,
    a_i = phi_i / omega_i, F = sum a_i^2, kappa' = 2 tau^2 / M + 2 (1 + 2/M) tr(Phi^2):

    Args:
        lower: |beta*|_H^2 / (M + 1); no constant that depends on M alone is better.
        lower_instance: The bound with the spectrum of Phi; tight for d = 1.
        lower_proof_route: 2 |beta*|_H^2 / (3M + 2), by the steps of the paper's proof.
        labels: |m|^2 kappa' / (tau^2 + kappa'): the start is guessed from y'y.
        values: sum m_i^2 (a_i^2 + F) / ((M + 1) a_i^2 + F): from p, with A = diag(a).
        rank_one: 2 |m|^2 / (M + 2) + sum_{i >= 2} phi_i^2 / omega_i, v = 0: all but the
            largest phi are given up, and m costs least.
        zero_start: The best linear step less the best GD-beta.

    Source: Zhang, Wu and Bartlett (2024), Theorem 4.1.
    """

    lower: Scalar
    lower_instance: Scalar
    lower_proof_route: Scalar
    labels: Scalar
    values: Scalar
    rank_one: Scalar
    zero_start: Scalar

    @property
    def upper(self) -> Scalar:
        """The least of the four upper bounds, each from an explicit LSA."""
        bounds = self.labels, self.values, self.rank_one, self.zero_start
        return jnp.min(jnp.stack(bounds))


@of_population
def gap(population: LinearPopulation, num_examples: Any) -> Gap:
    r"""Bounds on the difference between the least risks of LSA and LTB.

    .. math:: \inf_{LSA} R - \inf_{LTB} R \;\ge\; \frac{\|\beta^*\|_H^2}
        {1 + M \max_t \theta(t)} \;\ge\; \frac{\|\beta^*\|_H^2}{M + 1}, \qquad
        \theta(t) = \frac{(\tau^2 - \tau t + t^2) / M + \mathrm{tr}(\Phi^2) / 2}
        {(\tau^2 + t^2) / M + \mathrm{tr}(\Phi^2)} \le 1,

    at the end t of Phi's spectrum on im(H) where theta is larger. The paper's constant
    is not confirmed. The gap itself is the ``excess`` of the best LSA; for a large
    prior mean it tends to 2 |beta*|_H^2 / (M + 2). H and Psi may be singular;
    derivatives in them need distinct eigenvalues.

    Example:
        >>> population = LinearPopulation(jnp.eye(2), jnp.ones(2), jnp.eye(2), 0.0)
        >>> found = gap(population, 4)
        >>> round(float(found.lower), 4), round(float(found.upper), 4)
        (0.4, 0.8037)
        >>> round(float(found.zero_start), 4)
        0.8037
        >>> scalar = LinearPopulation(jnp.eye(1), jnp.ones(1), jnp.eye(1), 1.0)
        >>> found = gap(scalar, 10)
        >>> round(float(found.lower), 4), round(float(found.lower_instance), 4)
        (0.0909, 0.1579)

    Source: Zhang, Wu and Bartlett (2024), Theorem 4.1.
    """
    white = Whitened.of(population)
    M = jnp.asarray(num_examples, white.phi.dtype)
    H, mean = population.input_cov, population.task_mean
    size, tau = weighted(H, mean), white.tau
    ends = jnp.stack([white.phi[0], jnp.max(white.phi)])
    theta = jnp.max(_theta(white, M, ends))
    squares, shown = white.m**2, jnp.sum(white.m**2)
    lost = white.phi**2 / white.omega(M)
    gains = (white.phi / white.omega(M)) ** 2
    F = jnp.sum(gains)  # where all phi are 0 no value helps, and the share is 1
    share = quotient(gains + F, (M + 1) * gains + F, 1)
    kappa = white.labels(M)
    Gamma, _ = best_step(H, population.second_moment, population.noise_var, M)
    return Gap(
        lower=size / (M + 1),
        lower_instance=size / (1 + M * theta),
        lower_proof_route=2 * size / (3 * M + 2),
        labels=shown * (kappa / (tau**2 + kappa)),
        values=jnp.sum(squares * share),
        rank_one=2 * shown / (M + 2) + jnp.sum(lost) - jnp.max(lost),
        zero_start=excess(LinearStep(Gamma), population, num_examples).total,
    )


@of_population
def small_mean_gap(population: LinearPopulation, num_examples: Any) -> Scalar:
    r"""The gap between LSA and LTB for a small prior mean, to second order.

    .. math:: \inf_{LSA} R - \inf_{LTB} R = \sum_i \frac{m_i^2}
        {1 + h_i^\top D_i^{-1} h_i} + O(\|m\|^4), \quad
        h_i = \binom{a_i}{\tau}, \quad
        D_i = \begin{pmatrix} (a_i^2 + F) / M & 2 a_i \phi_i / M \\
        2 a_i \phi_i / M & \kappa' \end{pmatrix},

    in the notation of :class:`Gap`. It needs rank(Phi) >= 2, or d = 1; for rank one and
    d > 1 it is an upper bound to second order. The formula is not the paper's.

    Example:
        >>> task = LinearPopulation(jnp.eye(2), 0.01 * jnp.ones(2), jnp.eye(2), 0.0)
        >>> round(1e4 * float(small_mean_gap(task, 4)), 4)
        0.7797
    """
    white = Whitened.of(population)
    M = jnp.asarray(num_examples, white.phi.dtype)
    a = white.phi / white.omega(M)
    corner, side = (a**2 + jnp.sum(a**2)) / M, 2 * a * white.phi / M
    other, tau = white.labels(M), white.tau
    above = other * a**2 - 2 * side * a * tau + corner * tau**2
    form = quotient(above, corner * other - side**2, tau**2 / other)  # 0 / 0: limit
    return jnp.sum(white.m**2 / (1 + form))


@of_population
def scalar_gap(
    population: LinearPopulation, num_examples: Any
) -> tuple[Scalar, Scalar]:
    r"""The gap between LSA and LTB for d = 1, and the largest |m| for which it is that.

    .. math:: \inf_{LSA} R - \inf_{LTB} R = \frac{m^2}{1 + M \theta(\phi)}, \quad
        D = \begin{pmatrix} 2/M & 2\phi/M \\ 2\phi/M & \kappa' \end{pmatrix},
        \qquad |m| \le m_c = \frac{\phi / (2 \omega)}{\sqrt{z_1 z_2}}, \quad
        z = \frac{D^{-1} \binom1\tau}{1 + M \theta(\phi)},

    the instance bound of :func:`gap`, tight here; m_c is infinite where z_1 z_2 is not
    positive. The formula is not the paper's.

    Example:
        >>> task = LinearPopulation(jnp.eye(1), 0.1 * jnp.ones(1), jnp.eye(1), 1.0)
        >>> found, largest = scalar_gap(task, 10)
        >>> round(float(found), 6), round(float(largest), 4)
        (0.001579, 1.9531)
    """
    if population.dim != 1:
        raise ValueError(f"population: expected dimension 1, got {population.dim}")
    white = Whitened.of(population)
    M = jnp.asarray(num_examples, white.phi.dtype)
    phi, tau, kappa = white.phi[0], white.tau, white.labels(M)
    corner, side = 2 / M, 2 * phi / M
    level = 1 + M * _theta(white, M, phi)
    # The product z_1 z_2, by Cramer's rule.
    product = (kappa - side * tau) * (corner * tau - side)
    product = product / ((corner * kappa - side**2) * level) ** 2
    inner = product > 0
    limit = phi / (2 * white.omega(M)[0]) / jnp.sqrt(jnp.where(inner, product, 1))
    return white.m[0] ** 2 / level, jnp.where(inner, limit, jnp.inf)


def _theta(white: Whitened, M: Array, t: Array) -> Array:
    """The theta(t) of :func:`gap`."""
    above = (white.tau**2 - white.tau * t + t**2) / M + white.square / 2
    return above / ((white.tau**2 + t**2) / M + white.square)


# From the proof: 1 + 4 c + 8 log 9 + 8 bounds the noise from the tail of w.
_BASE = 4 * (9 + 8 * math.log(9))


class RiskBounds(Record):
    """A lower and an upper bound on a risk."""

    lower: Scalar
    upper: Scalar


class LikelyBounds(RiskBounds):
    """Bounds on the Bayes risk given drawn inputs, and how likely they hold.

    Where ``lower`` holds, for any c with ``lower_probability``, (R_min - sigma^2) /
    (R(X) - sigma^2) is at most ``ratio`` = 3 (1 + 2c).
    """

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

    and c = tr(H Psi) / sigma^2 unless given. In the last line the left side holds with
    a probability over the inputs X of at least 1 - p, p = e^{-M (1 - log 2) / 2}, for
    any c, and both with 1 - p - e^{-M} - e^{-M / 32}. The paper states orders; the page
    "Flows, rates and related results" proves the constants. On drawn X, with c between
    0.01 and 3.2, (R(X) - sigma^2) / S lay between 0.17 and 4.9.

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
    c = quotient(signal, noise_var, jnp.inf) if constant is None else constant
    c = jnp.asarray(c, signal.dtype)
    allowed = signal if constant is None else c * noise_var
    # c S = c sigma^2 D / M, which is also finite without noise.
    total, scaled = noise_var * dimension / M, allowed * dimension / M
    upper = noise_var + total + 2 * scaled
    bayes = jnp.sum(phi * quotient(noise_var, noise_var + strength, 1))
    best = jnp.sum(phi * (phi + tau) / ((M + 1) * phi + tau))
    missed = jnp.exp(-M * (1 - math.log(2)) / 2)
    return Rates(
        effective_dimension=dimension,
        threshold_sum=total,
        constant=c,
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
