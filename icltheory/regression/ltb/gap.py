"""Theorem 4.1: bounds on the risk of linear attention without an MLP."""

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._pytree import pytree
from icltheory._typing import Array, Scalar
from icltheory.regression.ltb._moments import check_tau, read_length, weighted
from icltheory.regression.ltb._spectral import Whitened
from icltheory.regression.ltb.decomposition import gd_beta_excess
from icltheory.regression.ltb.gd_beta import GDBeta
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._population import Count
from icltheory.regression.risks.linear_attention import linear_attention_optimum

__all__ = ["Gap", "GapUpperBounds", "approximation_gap", "gap_upper_bounds"]


@pytree
class Gap:
    r"""Bounds on inf LSA - inf LTB, the risk reduction by an MLP (Theorem 4.1).

    .. math:: \texttt{lower\_proof\_route} \le \texttt{lower} \le
        \texttt{lower\_instance} \le \inf_{LSA} R - \inf_{LTB} R \le \texttt{upper}.

    Args:
        lower: |beta*|_H^2 / (M + 1).
        lower_instance: The bound with the spectrum of Phi; tight for d = 1.
        upper: The least of ``gap_upper_bounds``.
        lower_proof_route: 2 |beta*|_H^2 / (3M + 2).

    Returns:
        A frozen pytree.

    Example:
        >>> task = LinearPopulation(jnp.eye(2), jnp.ones(2), jnp.eye(2), 0.0)
        >>> gap = approximation_gap(task, 4)
        >>> round(float(gap.lower), 4), round(float(gap.upper), 4)
        (0.4, 0.8037)

    Source: Zhang, Wu and Bartlett (2024), Theorem 4.1.
    """

    lower: Scalar
    lower_instance: Scalar
    upper: Scalar
    lower_proof_route: Scalar


@calculator
def approximation_gap(problem: LinearPopulation, num_examples: Count) -> Gap:
    r"""Difference between the least risks of LSA and LTB (Theorem 4.1).

    .. math:: \inf_{LSA} R - \inf_{LTB} R \;\ge\; \frac{\|\beta^*\|_H^2}
        {1 + M \max_t \theta(t)} \;\ge\; \frac{\|\beta^*\|_H^2}{M + 1}, \qquad
        \theta(t) = \frac{(\tau^2 - \tau t + t^2) / M + \mathrm{tr}(\Phi^2) / 2}
        {(\tau^2 + t^2) / M + \mathrm{tr}(\Phi^2)} \le 1,

    with t between the extreme eigenvalues of Phi = H^{1/2} Psi H^{1/2} on im(H), where
    theta is largest at an end. 1 / (M + 1) is the best constant that depends on M
    alone; the constant that the paper prints is not confirmed, and the steps of its
    proof give 2 / (3M + 2), which is ``lower_proof_route``. ``optimal_lsa`` computes
    the gap itself. Without a prior mean there is none. Derivatives in H and Psi exist
    for ``lower`` and ``lower_proof_route``; the others need distinct eigenvalues.

    Args:
        problem: The population (H, beta*, Psi, sigma^2), singular ones included.
        num_examples: Examples M >= 1; may be traced.

    Returns:
        Three lower bounds and the least upper bound.

    Example:
        >>> task = LinearPopulation(jnp.eye(1), jnp.ones(1), jnp.eye(1), 1.0)
        >>> gap = approximation_gap(task, 10)
        >>> round(float(gap.lower), 4), round(float(gap.lower_instance), 4)
        (0.0909, 0.1579)

    Source: Zhang, Wu and Bartlett (2024), Theorem 4.1.
    """
    white = Whitened.of(problem)
    check_tau(white.tau)
    M = read_length(num_examples, white.phi.dtype)
    size = weighted(jnp.asarray(problem.input_cov), jnp.asarray(problem.task_mean))
    ends = jnp.stack([white.lowest, jnp.max(white.phi)])
    theta = jnp.max(_theta(ends, white.tau, white.square, M))
    return Gap(
        lower=size / (M + 1),
        lower_instance=size / (1 + M * theta),
        upper=gap_upper_bounds(problem, num_examples).least,
        lower_proof_route=2 * size / (3 * M + 2),
    )


@pytree
class GapUpperBounds:
    r"""Closed-form upper bounds on the gap, from explicit LSAs.

    With phi_i, m_i in the eigenbasis of Phi, a_i = phi_i / omega_i, F = sum a_i^2 and
    kappa' = 2 tau^2 / M + 2 (1 + 2/M) tr(Phi^2):

    Args:
        labels: |m|^2 kappa' / (tau^2 + kappa'): the start is guessed from y'y.
        values: sum m_i^2 (a_i^2 + F) / ((M + 1) a_i^2 + F): from p, with A = diag(a).
        rank_one: 2 |m|^2 / (M + 2) + sum_{i >= 2} phi_i^2 / omega_i, v = 0: all but the
            largest phi are given up, and m costs least.
        zero_start: The best GD-0 less the best GD-beta.

    Returns:
        A frozen pytree; ``least`` is the smallest.

    Example:
        >>> task = LinearPopulation(jnp.eye(2), jnp.ones(2), jnp.eye(2), 0.0)
        >>> round(float(gap_upper_bounds(task, 4).zero_start), 4)
        0.8037

    Source: Zhang, Wu and Bartlett (2024), Theorem 4.1.
    """

    labels: Scalar
    values: Scalar
    rank_one: Scalar
    zero_start: Scalar

    @property
    def least(self) -> Scalar:
        """The smallest of the bounds."""
        bounds = (self.labels, self.values, self.rank_one, self.zero_start)
        return jnp.min(jnp.stack([jnp.asarray(bound) for bound in bounds]))


@calculator
def gap_upper_bounds(problem: LinearPopulation, num_examples: Count) -> GapUpperBounds:
    r"""Closed-form upper bounds on the gap between LSA and LTB.

    .. math:: \inf_{LSA} R - \inf_{LTB} R \le \min \Bigl\{
        \tfrac{\kappa' \|m\|^2}{\tau^2 + \kappa'}, \;
        \sum_i m_i^2 \tfrac{a_i^2 + F}{(M+1) a_i^2 + F}, \;
        \tfrac{2 \|m\|^2}{M+2} + \sum_{i \ge 2} \tfrac{\phi_i^2}{\omega_i}, \;
        R_{GD\text{-}0} - R_{\min} \Bigr\}, \qquad m = H^{1/2} \beta^*.

    The third is below 2 |m|^2 / (M + 2) + tr(Phi^2 Omega^{-1}), which gives up every
    direction, by the largest term of the trace. For |beta*| large the gap tends to
    2 |beta*|_H^2 / (M + 2). Derivatives in H and Psi need distinct eigenvalues.

    Args:
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1.

    Returns:
        The bounds.

    Example:
        >>> task = LinearPopulation(jnp.eye(2), 100.0 * jnp.ones(2), jnp.eye(2), 0.0)
        >>> bounds = gap_upper_bounds(task, 4)
        >>> float(bounds.least) == float(bounds.rank_one)
        True

    Source: Zhang, Wu and Bartlett (2024), Theorem 4.1.
    """
    white = Whitened.of(problem)
    check_tau(white.tau)
    M = read_length(num_examples, white.phi.dtype)
    phi, tau, squares = white.phi, white.tau, white.m**2
    size = jnp.sum(squares)
    omega = ((M + 1) * phi + tau) / M
    gains = (phi / omega) ** 2
    total = jnp.sum(gains)
    # If all phi are 0, no value reduces the risk and the bound is |m|^2.
    below = (M + 1) * gains + total
    shares = jnp.where(below > 0, (gains + total) / jnp.where(below > 0, below, 1), 1)
    kappa = 2 * tau**2 / M + 2 * (1 + 2 / M) * white.square
    lost = phi**2 / omega
    Gamma = linear_attention_optimum(problem, num_examples).Gamma
    zero_start = GDBeta(jnp.zeros_like(phi), Gamma)
    return GapUpperBounds(
        labels=size * (kappa / (tau**2 + kappa)),
        values=jnp.sum(squares * shares),
        rank_one=2 * size / (M + 2) + jnp.sum(lost) - jnp.max(lost),
        zero_start=gd_beta_excess(zero_start, problem, num_examples).total,
    )


def _theta(t: Array, tau: Array, square: Array, M: Array) -> Array:
    """Coefficient of M in the lower bound, for a direction with eigenvalue t of Phi."""
    above = (tau**2 - tau * t + t**2) / M + square / 2
    return above / ((tau**2 + t**2) / M + square)
