"""The excess risk as a sum of squares, one for each part of a model."""

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._pytree import pytree
from icltheory._typing import Scalar
from icltheory.regression._linalg import einsum
from icltheory.regression.ltb import _formulas
from icltheory.regression.ltb._moments import Moments, check_dim, outer, weighted
from icltheory.regression.ltb.effective import EffectiveParameters
from icltheory.regression.ltb.gd_beta import GDBeta
from icltheory.regression.ltb.models import LSA, LTB
from icltheory.regression.ltb.optimum import optimal_gd_beta
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._population import Count

__all__ = ["BlockExcess", "GDBetaExcess", "excess_terms", "gd_beta_excess"]


@pytree
class GDBetaExcess:
    r"""Excess risk of a GD-beta over the optimum, in two parts.

    .. math:: R - R_{\min} = b^\top Q(\Gamma)\, b
        + \bigl\| H^{1/2} (\Gamma - \Gamma^*) H^{1/2} \Omega^{1/2} \bigr\|_F^2.

    Args:
        start: Cost of the wrong start, b = beta - beta*.
        preconditioner: Cost of the wrong Gamma.

    Returns:
        A frozen pytree; ``total`` is the sum.

    Example:
        >>> task = LinearPopulation.isotropic(2)
        >>> parts = gd_beta_excess(GDBeta(jnp.ones(2), 0.5 * jnp.eye(2)), task, 3)
        >>> float(parts.start), float(parts.preconditioner)
        (1.0, 0.0)

    Source: Zhang, Wu and Bartlett (2024), Appendix C.
    """

    start: Scalar
    preconditioner: Scalar

    @property
    def total(self) -> Scalar:
        """The excess risk."""
        return self.start + self.preconditioner


@pytree
class BlockExcess:
    r"""Excess risk of an LTB or LSA over the best LTB, in four parts.

    In the whitened coordinates of ``risk``,

    .. math:: R - R_{\min} = \underbrace{\| \Omega^{1/2} (B - \Omega^{-1} \Phi) \|_F^2}
        _{\text{preconditioner}}
        + \underbrace{\| A^\top q + v \tau g - m \|^2 + v^2 \|g\|^2
        (\tfrac{2\tau^2}{M} + 2\,\mathrm{tr}\,\Phi^2)}_{\text{start}}
        + \underbrace{\tfrac1M \| A_{ij} q_k + 2 v \Phi_{ik} g_j \|_F^2}
        _{\text{fluctuation}}
        + \underbrace{\tfrac1M \|A^\top q\|^2}_{\text{drift}}.

    Args:
        preconditioner: I, cost of the wrong step.
        start: III, cost of the wrong start and of reading y'y.
        fluctuation: II, of the cubic terms in the data.
        drift: IV, variance of the start that the values make.

    Returns:
        A frozen pytree; ``total`` is the sum. No part is negative, but
        for rounding.

    Example:
        >>> task = LinearPopulation.isotropic(2)
        >>> zero = jnp.zeros(2)
        >>> step = EffectiveParameters(zero, zero, 1.0, 0.5 * jnp.eye(2), zero)
        >>> float(excess_terms(step, task, 3).total)
        0.0

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


@calculator
def gd_beta_excess(
    model: GDBeta, problem: LinearPopulation, num_examples: Count
) -> GDBetaExcess:
    r"""Excess risk of a GD-beta, computed without cancellation near the optimum.

    .. math:: R - R_{\min} = b^\top Q(\Gamma)\, b + \mathrm{tr}\bigl(
        D^\top H D\, H^{1/2} \Omega H^{1/2} \bigr), \qquad D = \Gamma - \Gamma^*.

    Args:
        model: The GD-beta.
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1.

    Returns:
        Both parts.

    Example:
        >>> task = LinearPopulation.isotropic(2)
        >>> best = GDBeta(jnp.zeros(2), 0.5 * jnp.eye(2))
        >>> float(gd_beta_excess(best, task, 3).total)
        0.0

    Source: Zhang, Wu and Bartlett (2024), Appendix C.
    """
    check_dim(problem, model.dim)
    moments = Moments.of(problem, num_examples)
    best, _ = optimal_gd_beta(problem, num_examples)
    D = model.Gamma - best.Gamma
    return GDBetaExcess(
        weighted(_formulas.curvature(moments, model.Gamma), model.beta - best.beta),
        einsum("ji,jk,kl,li->", D, moments.H, D, moments.H_Omega_H),
    )


@calculator
def excess_terms(
    model: LSA | LTB | GDBeta | EffectiveParameters,
    problem: LinearPopulation,
    num_examples: Count,
) -> BlockExcess:
    r"""Excess risk of any LTB or LSA over the best LTB, in four parts.

    .. math:: R - R_{\min} = \mathrm{I} + \mathrm{III} + \mathrm{II} + \mathrm{IV},

    each as in ``BlockExcess``. Cost O(d^3), without roots of H.

    Args:
        model: The model.
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1.

    Returns:
        The parts.

    Example:
        >>> task = LinearPopulation(jnp.eye(2), jnp.ones(2), jnp.eye(2), 0.0)
        >>> zero = jnp.zeros(2)
        >>> step = EffectiveParameters(zero, zero, 1.0, 0.5 * jnp.eye(2), zero)
        >>> excess_terms(step, task, 3).start.round(4).tolist()
        0.5

    Source: Zhang, Wu and Bartlett (2024), Appendices B and D.
    """
    parts = model.effective()
    check_dim(problem, parts.dim)
    moments = Moments.of(problem, num_examples)
    best, _ = optimal_gd_beta(problem, num_examples)
    H, M, tau = moments.H, moments.M, moments.tau
    v, u = jnp.asarray(parts.v), jnp.asarray(parts.u)
    q, A = _formulas.centred(moments, parts.p, v, parts.U, u)  # pyrefly: ignore
    D = v * A + outer(q, u) - best.Gamma.T
    mixed = einsum("ji,jk,k->i", A, H, q)
    start = mixed + v * tau * u - (moments.mean - parts.c)
    labels = v**2 * weighted(H, u)
    cubic = _formulas.tensor_cross(moments, q, v, A, u) + 4 * labels * moments.square
    return BlockExcess(
        preconditioner=einsum("ji,jk,kl,li->", D, moments.H_Omega_H, D, H),
        start=weighted(H, start) + labels * (2 * tau**2 / M + 2 * moments.square),
        fluctuation=cubic / M,
        drift=weighted(H, mixed) / M,
    )
