"""Theorem 5.2: the best GD-beta, its risk, and all minimisers."""

import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, Scalar
from icltheory.regression._linalg import einsum
from icltheory.regression.ltb._moments import Moments, check_tau
from icltheory.regression.ltb._spectral import InputRoots
from icltheory.regression.ltb.gd_beta import GDBeta
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._population import Count

__all__ = ["GDBetaMinimizers", "gd_beta_minimizers", "minimal_risk", "optimal_gd_beta"]


@calculator
def minimal_risk(problem: LinearPopulation, num_examples: Count) -> Scalar:
    r"""Smallest risk of a GD-beta, equally of an LTB (Theorems 5.2 and 5.3).

    .. math:: R_{\min} = \sigma^2
        + \mathrm{tr}\bigl( \Psi H (\Psi H + \tau I) ((M+1) \Psi H + \tau I)^{-1} \bigr)
        = \sigma^2 + \sum_i \frac{\phi_i (\phi_i + \tau)}{(M+1) \phi_i + \tau},

    with phi_i the eigenvalues of H^{1/2} Psi H^{1/2} and tau = tr(H Psi) + sigma^2 > 0.
    It does not depend on beta*. H and Psi may be singular. Cost O(d^3); differentiable,
    also where eigenvalues coincide.

    Args:
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1; may be traced.

    Returns:
        The risk.

    Example:
        >>> task = LinearPopulation.isotropic(20)
        >>> round(float(minimal_risk(task, 40)), 4)
        6.8852

    Source: Zhang, Wu and Bartlett (2024), Theorem 5.2.
    """
    moments = Moments.of(problem, num_examples)
    check_tau(moments.tau)
    Psi_H, system = _system(moments)
    shifted = Psi_H + moments.tau * jnp.eye(problem.dim, dtype=Psi_H.dtype)
    gain = jnp.linalg.solve(system, einsum("ij,jk->ik", shifted, Psi_H))
    return moments.noise_var + jnp.trace(gain)


@calculator
def optimal_gd_beta(
    problem: LinearPopulation, num_examples: Count
) -> tuple[GDBeta, Scalar]:
    r"""The best GD-beta and its risk (Theorem 5.2).

    .. math:: \beta^*, \qquad \Gamma^* = \Psi H^{1/2} \Omega^{-1} H^{-1/2}
        = M\, ((M+1) \Psi H + \tau I)^{-1} \Psi P, \qquad
        \Omega = \tfrac{M+1}{M} H^{1/2} \Psi H^{1/2} + \tfrac{\tau}{M} I,

    with H^{-1/2} the Moore-Penrose inverse and P the projector on im(H). For positive
    definite H it is the only minimiser; for singular H see ``gd_beta_minimizers``. As M
    grows, Gamma* = H^{-1} - (H^{-1} + tau H^{-1} Psi^{-1} H^{-1}) / M + O(M^{-2}), a
    Newton step, if H and Psi are positive definite, and M (R_min - sigma^2) tends to
    (d + 1) tr(H Psi) + d sigma^2. Cost O(d^3). Derivatives hold P fixed.

    Args:
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1; may be traced.

    Returns:
        The model, and its risk R_min.

    Example:
        >>> best, risk = optimal_gd_beta(LinearPopulation.isotropic(5), 20)
        >>> best.Gamma[0, :2].round(4).tolist(), round(float(risk), 4)
        ([0.7692, 0.0], 1.1538)

    Source: Zhang, Wu and Bartlett (2024), Theorem 5.2.
    """
    moments = Moments.of(problem, num_examples)
    check_tau(moments.tau)
    _, system = _system(moments)
    projector = lax.stop_gradient(InputRoots.of(moments.H).projector)
    Gamma = moments.M * jnp.linalg.solve(system, moments.Psi)
    best = GDBeta(moments.mean, einsum("ij,jk->ik", Gamma, projector))
    return best, minimal_risk(problem, num_examples)


@pytree
class GDBetaMinimizers:
    r"""All minimisers of the risk of GD-beta (Theorem 5.2).

    .. math:: \beta \in \beta^* + \mathrm{null}(H), \qquad
        \Gamma \in \Gamma^* + \{Z : P Z P = 0\},

    with P the projector on im(H). They are one function on almost every prompt.

    Args:
        best: (beta*, Gamma*).
        projector: P.

    Returns:
        A frozen pytree; ``member`` makes a minimiser, ``distance`` measures how far a
        model is from the set.

    Example:
        >>> H = jnp.diag(jnp.array([1.0, 0.0]))
        >>> task = LinearPopulation(H, jnp.ones(2), jnp.eye(2), 0.0)
        >>> best = gd_beta_minimizers(task, 8)
        >>> other = best.member(jnp.array([5.0, 3.0]), jnp.ones((2, 2)))
        >>> other.beta.tolist(), round(float(other.risk(task, 8)), 4)
        ([1.0, 4.0], 0.2)

    Source: Zhang, Wu and Bartlett (2024), Theorem 5.2.
    """

    best: GDBeta
    projector: Float[Array, "d d"]

    def member(
        self, shift: Float[ArrayLike, "_d"], change: Float[ArrayLike, "_d _d"]
    ) -> GDBeta:
        """The minimiser beta* + (I - P) shift, Gamma* + change - P change P."""
        P = self.projector
        check_shape("shift", shift, (P.shape[0],))
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


@calculator
def gd_beta_minimizers(
    problem: LinearPopulation, num_examples: Count
) -> GDBetaMinimizers:
    r"""The whole set of minimisers of the risk of GD-beta (Theorem 5.2).

    .. math:: \beta \in \beta^* + \mathrm{null}(H), \qquad
        \Gamma \in \Gamma^* + \mathrm{null}(H \otimes H).

    Args:
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1.

    Returns:
        The set, as the optimum and the projector on im(H), which derivatives hold
        fixed. Eigenvalues of H below d eps times the largest count as 0.

    Example:
        >>> task = LinearPopulation.isotropic(2)
        >>> [float(x) for x in gd_beta_minimizers(task, 3).distance(
        ...     GDBeta(jnp.array([0.0, 2.0]), 0.5 * jnp.eye(2)))]
        [2.0, 0.0]

    Source: Zhang, Wu and Bartlett (2024), Theorem 5.2.
    """
    best, _ = optimal_gd_beta(problem, num_examples)
    projector = InputRoots.of(jnp.asarray(problem.input_cov)).projector
    return GDBetaMinimizers(best, lax.stop_gradient(projector))


def _system(moments: Moments) -> tuple[Array, Array]:
    """Psi H and (M + 1) Psi H + tau I."""
    Psi_H = einsum("ij,jk->ik", moments.Psi, moments.H)
    eye = jnp.eye(Psi_H.shape[0], dtype=Psi_H.dtype)
    return Psi_H, (moments.M + 1) * Psi_H + moments.tau * eye
