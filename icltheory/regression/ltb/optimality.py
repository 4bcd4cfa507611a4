"""Theorem 5.3: conditions for an LTB to be optimal."""

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._noted import check_nonnegative
from icltheory._pytree import pytree
from icltheory._typing import Array, Bool, Scalar
from icltheory.regression._linalg import Number, einsum, symmetric_root
from icltheory.regression.ltb._moments import Moments, check_dim, check_tau
from icltheory.regression.ltb._spectral import Whitened
from icltheory.regression.ltb.effective import EffectiveParameters
from icltheory.regression.ltb.gd_beta import GDBeta
from icltheory.regression.ltb.models import LTB
from icltheory.regression.ltb.optimum import optimal_gd_beta
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._population import Count

__all__ = ["OptimalityConditions", "optimality_conditions"]


@pytree
class OptimalityConditions:
    r"""Distance of an LTB from each condition of Theorem 5.3.

    Lengths are in label units, that is, over sqrt(tau); none depends on the gauge.

    Args:
        value: v; the theorem asks for v != 0.
        read_out: |c - beta*|_H.
        start: |p / v + beta*|_H, infinite for v = 0.
        labels: tau |v u|_H.
        scores: |H^{1/2} (v U' - Gamma*) H^{1/2}|_F, of size up to sqrt(d).
        rank: rank(Phi); below 2 the conditions are sufficient, not necessary.

    Returns:
        A frozen pytree; ``hold`` is the predicate.

    Example:
        >>> task = LinearPopulation.isotropic(2)
        >>> model = GDBeta(jnp.zeros(2), 0.5 * jnp.eye(2))
        >>> conditions = optimality_conditions(model, task, 3)
        >>> bool(conditions.hold()), int(conditions.rank)
        (True, 2)

    Source: Zhang, Wu and Bartlett (2024), Theorem 5.3.
    """

    value: Scalar
    read_out: Scalar
    start: Scalar
    labels: Scalar
    scores: Scalar
    rank: Array

    def hold(self, tolerance: Number = 1e-6) -> Bool[Array, ""]:
        """Whether v != 0 and every distance is within the tolerance."""
        check_nonnegative("tolerance", tolerance)
        distances = (self.read_out, self.start, self.labels, self.scores)
        worst = jnp.max(jnp.stack([jnp.asarray(x) for x in distances]))
        return (self.value != 0) & (worst <= tolerance)


@calculator
def optimality_conditions(
    model: LTB | GDBeta | EffectiveParameters,
    problem: LinearPopulation,
    num_examples: Count,
) -> OptimalityConditions:
    r"""Checks whether an LTB minimises the risk over all LTBs (Theorem 5.3).

    The least risk of an LTB is that of GD-beta, ``minimal_risk``, for d_k >= d and
    d_v, d_f >= 1. If rank(Phi) >= 2, an LTB attains it if and only if

    .. math:: v \ne 0, \quad H c = H \beta^*, \quad H (p + v \beta^*) = 0, \quad
        H u = 0, \quad v U^\top \in \Gamma^* + \mathrm{null}(H \otimes H).

    If rank(Phi) = 1 there is a second family, v = 0, c = beta*, u p' = Gamma*, U =
    -beta* u', the same function.

    Args:
        model: The block.
        problem: The population (H, beta*, Psi, sigma^2), singular ones included.
        num_examples: Examples M >= 1.

    Returns:
        The distance from each condition.

    Example:
        >>> task = LinearPopulation(jnp.eye(2), jnp.ones(2), jnp.eye(2), 0.0)
        >>> model = GDBeta(jnp.zeros(2), 0.5 * jnp.eye(2))
        >>> conditions = optimality_conditions(model, task, 3)
        >>> bool(conditions.hold()), float(conditions.read_out)
        (False, 1.0)

    Source: Zhang, Wu and Bartlett (2024), Theorem 5.3.
    """
    parts = model.effective()
    check_dim(problem, parts.dim)
    moments = Moments.of(problem, num_examples)
    check_tau(moments.tau)
    best, _ = optimal_gd_beta(problem, num_examples)
    H, tau, v = moments.H, moments.tau, jnp.asarray(parts.v)
    scores = v * jnp.asarray(parts.U).T - best.Gamma
    start = jnp.asarray(parts.p) / jnp.where(v == 0, 1, v) + moments.mean
    white = Whitened.of(problem)
    root = symmetric_root(H)
    # The rounding error of Phi depends on its three factors, which may be far larger
    # than Phi.
    size = einsum("ij,jk,ki->", *map(jnp.abs, (root, moments.Psi, root)))
    cutoff = 8 * problem.dim * jnp.finfo(H.dtype).eps * size

    missed = einsum("ij,jk,kl->il", root, scores, root)

    def length(a):
        return jnp.sqrt(jnp.sum(einsum("ij,j->i", root, a) ** 2) / tau)

    return OptimalityConditions(
        value=v,
        read_out=length(jnp.asarray(parts.c) - moments.mean),
        start=jnp.where(v == 0, jnp.inf, length(start)),
        labels=tau * length(v * jnp.asarray(parts.u)),
        scores=jnp.sqrt(jnp.sum(missed**2)),
        rank=jnp.sum(white.phi > cutoff),
    )
