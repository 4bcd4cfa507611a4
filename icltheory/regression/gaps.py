"""Excess risk over the best LTB, and the gap between LSA and LTB: what an MLP gains."""

from typing import Any

import jax.numpy as jnp

from icltheory._checks import count
from icltheory._core import Record, calculator
from icltheory._typing import Array, Scalar
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
from icltheory.regression._linalg import quotient
from icltheory.regression.blocks import EffectiveParameters
from icltheory.regression.gradient_blocks import GDBeta
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors import LinearStep

__all__ = ["Excess", "Gap", "excess", "gap", "scalar_gap", "small_mean_gap"]


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

    In the paper's order: I, III (the wrong start, and reading y'y), II (cubic terms in
    the data), IV (variance of the start that the values make).

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
    task_cov=population.second_moment)``.

    ``model`` is a LinearStep, GDBeta, LSA, LTB or EffectiveParameters.

    Example:
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


def parts_of(model: Any) -> EffectiveParameters:
    """The effective parameters of a model; raises for what has none."""
    if isinstance(model, LinearStep):
        model = GDBeta(0 * model.Gamma[0], model.Gamma)
    if not hasattr(model, "effective"):
        raise ValueError(
            "model: expected LinearStep, GDBeta, LSA, LTB or EffectiveParameters, "
            f"got {type(model).__name__}"
        )
    return model.effective()


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

    with t between the extreme eigenvalues of Phi on im(H), where theta is largest at an
    end. The constant that the paper prints is not confirmed. The gap itself is the
    ``excess`` of the best LSA; for a large prior mean it tends to 2 |beta*|_H^2 / (M +
    2). Derivatives in H and Psi need distinct eigenvalues. They may be singular.

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
    above = (tau**2 - tau * ends + ends**2) / M + white.square / 2
    theta = jnp.max(above / ((tau**2 + ends**2) / M + white.square))
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
    form = _quadratic(a, white.tau, corner, side, white.labels(M))
    return jnp.sum(white.m**2 / (1 + form))


@of_population
def scalar_gap(
    population: LinearPopulation, num_examples: Any
) -> tuple[Scalar, Scalar]:
    r"""The gap between LSA and LTB for d = 1, and the largest |m| for which it is that.

    .. math:: \inf_{LSA} R - \inf_{LTB} R = \frac{m^2}{1 + h^\top D^{-1} h}
        = \frac{m^2}{1 + M \theta(\phi)}, \quad h = \binom1\tau, \quad
        D = \begin{pmatrix} 2/M & 2\phi/M \\ 2\phi/M & \kappa' \end{pmatrix},
        \qquad |m| \le m_c = \frac{\phi / (2 \omega)}{\sqrt{z_1 z_2}}, \quad
        z = \frac{D^{-1} h}{1 + h^\top D^{-1} h},

    the instance bound of Theorem 4.1, tight here; m_c is infinite where z_1 z_2 is not
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
    level = 1 + _quadratic(jnp.ones_like(phi), tau, corner, side, kappa)
    # The product z_1 z_2, by Cramer's rule.
    determinant = corner * kappa - side**2
    product = (kappa - side * tau) * (corner * tau - side) / (determinant * level) ** 2
    inner = product > 0
    limit = phi / (2 * white.omega(M)[0]) / jnp.sqrt(jnp.where(inner, product, 1))
    return white.m[0] ** 2 / level, jnp.where(inner, limit, jnp.inf)


def _quadratic(a: Array, b: Array, corner: Array, side: Array, other: Array) -> Array:
    """Form h' D^{-1} h for h = (a, b); 0 / 0 counts as b^2 / other, its limit."""
    determinant = corner * other - side**2
    above = other * a**2 - 2 * side * a * b + corner * b**2
    singular = determinant <= 0
    form = above / jnp.where(singular, 1, determinant)
    return jnp.where(singular, b**2 / other, form)
