"""The risk of a linear transformer block around its minima, global and local."""

from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import check_shape, checked, count, finite, nonnegative
from icltheory._core import Record, calculator
from icltheory._typing import Array, Bool, Float, Scalar
from icltheory.regression._block_moments import (
    Moments,
    Whitened,
    best_step,
    check_dim,
    input_projector,
    of_population,
)
from icltheory.regression._block_moments import curvature as curvature_of
from icltheory.regression._linalg import Number, einsum, symmetric_root
from icltheory.regression.blocks import EffectiveParameters
from icltheory.regression.gradient_blocks import GDBeta, parts_of
from icltheory.regression.optima import reduced_excess
from icltheory.regression.population import LinearPopulation

__all__ = [
    "Minimizers",
    "OptimalityConditions",
    "SpuriousMinimum",
    "curvature",
    "excess_profile",
    "minimizers",
    "optimality_conditions",
    "spurious_minimum",
]


class Minimizers(Record):
    r"""All minimisers of the risk of GD-beta; one function on almost every prompt.

    .. math:: \beta \in \beta^* + \mathrm{null}(H), \qquad
        \Gamma \in \Gamma^* + \{Z : P Z P = 0\} .
    """

    best: GDBeta
    projector: Float[Array, "d d"]

    def member(self, shift: Any, change: Any) -> GDBeta:
        """The minimiser beta* + (I - P) shift, Gamma* + change - P change P."""
        P = self.projector
        check_shape("shift", shift, P.shape[:1])
        check_shape("change", change, P.shape)
        shift, change = jnp.asarray(shift, P.dtype), jnp.asarray(change, P.dtype)
        return GDBeta(
            self.best.beta + shift - einsum("ij,j->i", P, shift),
            self.best.Gamma + change - einsum("ij,jk,kl->il", P, change, P),
        )

    def distance(self, model: GDBeta) -> tuple[Scalar, Scalar]:
        """|P (beta - beta*)| and |P (Gamma - Gamma*) P|, both 0 on the set."""
        P = self.projector
        beta = einsum("ij,j->i", P, model.beta - self.best.beta)
        Gamma = einsum("ij,jk,kl->il", P, model.Gamma - self.best.Gamma, P)
        return jnp.sqrt(jnp.sum(beta**2)), jnp.sqrt(jnp.sum(Gamma**2))


@of_population
def minimizers(population: LinearPopulation, num_examples: Any) -> Minimizers:
    """The minimisers of the risk of GD-beta; derivatives hold the projector fixed.

    Example:
        >>> H = jnp.diag(jnp.array([1.0, 0.0]))
        >>> population = LinearPopulation(H, jnp.ones(2), jnp.eye(2), 0.0)
        >>> best = minimizers(population, 8)
        >>> other = best.member(jnp.array([5.0, 3.0]), jnp.ones((2, 2)))
        >>> other.beta.tolist(), [float(x) for x in best.distance(other)]
        ([1.0, 4.0], [0.0, 0.0])

    Source: Zhang, Wu and Bartlett (2024), Theorem 5.2.
    """
    H, Psi, noise_var = population.input_cov, population.task_cov, population.noise_var
    M = jnp.asarray(num_examples, population.dtype)
    Gamma, _ = best_step(H, Psi, noise_var, M)
    return Minimizers(GDBeta(population.task_mean, Gamma), input_projector(H))


class OptimalityConditions(Record):
    r"""Distance of an LTB from each condition of Theorem 5.3.

    Lengths are in label units, that is, over sqrt(tau); none depends on the gauge.

    Args:
        value: v, which may not be 0.
        read_out: |c - beta*|_H.
        start: |p / v + beta*|_H, infinite for v = 0.
        labels: tau |v u|_H.
        scores: |H^{1/2} (v U' - Gamma*) H^{1/2}|_F, of size up to sqrt(d).
        rank: rank(Phi); below 2 the conditions are sufficient, not necessary.
    """

    value: Scalar
    read_out: Scalar
    start: Scalar
    labels: Scalar
    scores: Scalar
    rank: Array

    def hold(self, tolerance: Number = 1e-6) -> Bool[Array, ""]:
        """Whether v != 0 and every distance is within the tolerance."""
        tolerance = checked("tolerance", tolerance, nonnegative)
        distances = self.read_out, self.start, self.labels, self.scores
        return (self.value != 0) & (jnp.max(jnp.stack(distances)) <= tolerance)


@of_population
def optimality_conditions(
    model: Any, population: LinearPopulation, num_examples: Any
) -> OptimalityConditions:
    r"""Checks whether an LTB minimises the risk over all LTBs (Theorem 5.3).

    The least risk of an LTB is that of GD-beta, for d_k >= d and d_v, d_f >= 1. If
    rank(Phi) >= 2, an LTB attains it if and only if

    .. math:: v \ne 0, \quad H c = H \beta^*, \quad H (p + v \beta^*) = 0, \quad
        H u = 0, \quad v U^\top \in \Gamma^* + \mathrm{null}(H \otimes H).

    If rank(Phi) = 1 there is a second family, v = 0, c = beta*, u p' = Gamma*, U =
    -beta* u', the same function.

    Example:
        >>> population = LinearPopulation(jnp.eye(2), jnp.ones(2), jnp.eye(2), 0.0)
        >>> model = GDBeta(jnp.zeros(2), 0.5 * jnp.eye(2))
        >>> conditions = optimality_conditions(model, population, 3)
        >>> bool(conditions.hold()), float(conditions.read_out), int(conditions.rank)
        (False, 1.0, 2)

    Source: Zhang, Wu and Bartlett (2024), Theorem 5.3.
    """
    parts = parts_of(model)
    check_dim(population, parts.dim)
    moments = Moments.of(population, num_examples)
    H, tau, v = moments.H, moments.tau, parts.v
    Gamma, _ = best_step(H, moments.Psi, moments.noise_var, moments.M)
    root = symmetric_root(H)
    # Rounding depends on the three factors of Phi, which may be far larger than Phi.
    size = jnp.sum(abs(root) @ abs(moments.Psi) * abs(root).T)
    cutoff = 8 * population.dim * jnp.finfo(H.dtype).eps * size
    missed = root @ (v * parts.U.T - Gamma) @ root

    def length(a):
        return jnp.sqrt(jnp.sum((root @ a) ** 2) / tau)

    start = length(parts.p / jnp.where(v == 0, 1, v) + moments.mean)
    return OptimalityConditions(
        value=v,
        read_out=length(parts.c - moments.mean),
        start=jnp.where(v == 0, jnp.inf, start),
        labels=tau * length(v * parts.u),
        scores=jnp.sqrt(jnp.sum(missed**2)),
        rank=jnp.sum(Whitened.of(population).phi > cutoff),
    )


@calculator(integers=("num_examples",), num_examples=count(1), Gamma=finite)
def curvature(
    Gamma: Any, population: LinearPopulation, num_examples: Any
) -> Float[Array, "d d"]:
    r"""Curvature of the risk of GD-beta in beta, and how small it can be.

    .. math:: Q(\Gamma) = \mathbb{E}\,(I - \Gamma S)^\top H (I - \Gamma S)
        = H - H \Gamma H - H \Gamma^\top H + \tfrac{M+1}{M} H \Gamma^\top H \Gamma H
        + \tfrac{\mathrm{tr}(\Gamma^\top H \Gamma H)}{M} H
        \;\succeq\; \tfrac{2}{M+2} H

    for every Gamma, with equality where :math:`H^{1/2} \Gamma H^{1/2}` is M / (M + 2)
    times a projection on one direction; the paper has 1 / (M + 1). Of the population
    only H matters.

    Example:
        >>> Gamma = jnp.diag(jnp.array([0.5, 0.0, 0.0]))
        >>> curvature(Gamma, LinearPopulation.isotropic(3), 2).diagonal().tolist()
        [0.5, 1.125, 1.125]

    Source: Zhang, Wu and Bartlett (2024), Appendix G.
    """
    check_shape("Gamma", Gamma, (population.dim, population.dim))
    moments = Moments.of(population, num_examples)
    return curvature_of(moments, jnp.asarray(Gamma, moments.H.dtype))


class SpuriousMinimum(Record):
    """A stationary point of an LTB's risk that is not a global minimum.

    Its excess is 0 if Phi has rank 1 or 0; where the margin is positive it is a strict
    local minimum, up to the gauge.
    """

    parameters: EffectiveParameters
    excess: Scalar
    margin: Scalar

    @property
    def is_local_minimum(self) -> Bool[Array, ""]:
        """Whether the sufficient condition for a local minimum holds."""
        return self.margin > 0


@of_population
def spurious_minimum(
    population: LinearPopulation, num_examples: Any
) -> SpuriousMinimum:
    r"""A local minimum of an LTB's risk that is not global.

    .. math:: v = 0, \quad A = 0, \quad c = \beta^*, \quad
        q g^\top = \frac{\phi_1}{\omega_1} e_1 e_1^\top

    in the whitened coordinates of ``EffectiveParameters.exact_risk``, e_1 the top
    eigenvector of Phi, is a stationary point with excess :math:`\sum_{i \ge 2} \phi_i^2
    / \omega_i`. It is a strict local minimum, up to the gauge, if

    .. math:: \Bigl(\frac{\phi_1}{\omega_1}\Bigr)^2 \Bigl[ \frac{2\tau^2}{M}
        - \frac{2\phi_1^2}{M} + 2 \Bigl(1 + \frac2M\Bigr) \mathrm{tr}(\Phi^2) \Bigr]
        > M \sum_{i \ge 2} \phi_i^2.

    With beta* = 0 it is one of the LSA too.

    Example:
        >>> cov = jnp.diag(jnp.array([1.0, 0.05]))
        >>> population = LinearPopulation(jnp.eye(2), jnp.zeros(2), cov, 0.25)
        >>> found = spurious_minimum(population, 2)
        >>> round(float(found.excess), 6), bool(found.is_local_minimum)
        (0.003448, True)

    Source: Zhang, Wu and Bartlett (2024), remarks after Theorem 6.3 (the point is not
    the paper's).
    """
    white = Whitened.of(population)
    phi = white.phi
    M = jnp.asarray(num_examples, phi.dtype)
    omega, top = white.omega(M), jnp.argmax(phi)
    gain = phi[top] / omega[top]
    rest = jnp.sum(phi**2) - phi[top] ** 2
    labels = white.labels(M) - 2 * phi[top] ** 2 / M
    # The direction of the top eigenvector, in the coordinates of the inputs.
    u, mean = jnp.sqrt(gain) * white.back[:, top], population.task_mean
    parts = EffectiveParameters(mean, u, jnp.zeros((), u.dtype), -jnp.outer(mean, u), u)
    excess = jnp.sum((phi**2 / omega).at[top].set(0))
    return SpuriousMinimum(parts, excess, gain**2 * labels - M * rest)


@of_population
def excess_profile(
    population: LinearPopulation, num_examples: Any, angles: Any
) -> Float[Array, "n"]:
    r"""Excess risk of an LTB on the arc from the spurious to the global minimum.

    .. math:: \alpha \mapsto \min_{A, g} \bigl( R - R_{\min} \bigr), \qquad
        q = \sqrt\tau \cos(\alpha)\, e_1, \quad v = \sin(\alpha), \quad c = \beta^*.

    At 0 it is ``spurious_minimum``, at pi / 2 a best LTB.

    Example:
        >>> cov = jnp.diag(jnp.array([1.0, 0.05]))
        >>> population = LinearPopulation(jnp.eye(2), jnp.zeros(2), cov, 0.25)
        >>> ends = excess_profile(population, 2, jnp.array([0.0, jnp.pi / 2]))
        >>> [round(float(end), 6) for end in ends]
        [0.003448, 0.0]

    Source: Zhang, Wu and Bartlett (2024), remarks after Theorem 6.3.
    """
    check_shape("angles", angles, ("n",))
    white = Whitened.of(population)
    M = jnp.asarray(num_examples, white.phi.dtype)
    # With beta* as c, the remaining problem has mean 0.
    centred = white._replace(m=jnp.zeros_like(white.m))
    top = jnp.eye(population.dim, dtype=white.phi.dtype)[jnp.argmax(white.phi)]
    angles = jnp.asarray(angles, white.phi.dtype)
    q = jnp.sqrt(white.tau) * jnp.outer(jnp.cos(angles), top)
    on_arc = jax.vmap(lambda q, v: reduced_excess(centred, M, q, v))
    return on_arc(q, jnp.sin(angles))
