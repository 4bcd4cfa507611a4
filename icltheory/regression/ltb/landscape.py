"""Local minima of the risk of an LTB, which can trap training from random starts."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._pytree import pytree
from icltheory._typing import Array, Bool, Float, Scalar
from icltheory.regression._linalg import einsum
from icltheory.regression.ltb._lsa_reduced import Reduced
from icltheory.regression.ltb._moments import check_tau, outer, read_length
from icltheory.regression.ltb._spectral import Whitened
from icltheory.regression.ltb.effective import EffectiveParameters
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._population import Count

__all__ = ["SpuriousMinimum", "excess_profile", "spurious_minimum"]


@pytree
class SpuriousMinimum:
    r"""A stationary point of an LTB's risk that is not a global minimum.

    If Phi has rank 1 or 0 the excess is 0, and the point is a global minimum.

    Args:
        parameters: Its parameters.
        excess: Risk above that of the best LTB, sum_{i >= 2} phi_i^2 / omega_i.
        margin: Positive where it is a strict local minimum, up to the gauge.

    Returns:
        A frozen pytree.

    Example:
        >>> cov = jnp.diag(jnp.array([1.0, 0.05]))
        >>> task = LinearPopulation(jnp.eye(2), jnp.zeros(2), cov, 0.25)
        >>> bool(spurious_minimum(task, 2).is_local_minimum)
        True

    Source: Zhang, Wu and Bartlett (2024), remarks after Theorem 6.3.
    """

    parameters: EffectiveParameters
    excess: Scalar
    margin: Scalar

    @property
    def is_local_minimum(self) -> Bool[Array, ""]:
        """Whether the sufficient condition for a local minimum holds."""
        return self.margin > 0


@calculator
def spurious_minimum(problem: LinearPopulation, num_examples: Count) -> SpuriousMinimum:
    r"""A local minimum of an LTB's risk that is not global.

    .. math:: v = 0, \quad A = 0, \quad c = \beta^*, \quad
        q g^\top = \frac{\phi_1}{\omega_1} e_1 e_1^\top

    in the whitened coordinates of ``risk``, e_1 the top eigenvector of Phi, is a
    stationary point with excess :math:`\sum_{i \ge 2} \phi_i^2 / \omega_i`. It is a
    strict local minimum, up to the gauge, if

    .. math:: \Bigl(\frac{\phi_1}{\omega_1}\Bigr)^2 \Bigl[ \frac{2\tau^2}{M}
        - \frac{2\phi_1^2}{M} + 2 \Bigl(1 + \frac2M\Bigr) \mathrm{tr}(\Phi^2) \Bigr]
        > M \sum_{i \ge 2} \phi_i^2.

    With beta* = 0 it is one of the LSA too. If Phi has rank 1 or 0 the excess is 0, and
    the point is a global minimum. Theorem 6.3 is about GD-beta, whose risk
    has no such point. Derivatives in H and Psi need distinct eigenvalues.

    Args:
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1.

    Returns:
        The point, its excess, and the margin of the condition.

    Example:
        >>> cov = jnp.diag(jnp.array([1.0, 0.05]))
        >>> task = LinearPopulation(jnp.eye(2), jnp.zeros(2), cov, 0.25)
        >>> round(float(spurious_minimum(task, 2).excess), 6)
        0.003448

    Source: Zhang, Wu and Bartlett (2024), remarks after Theorem 6.3 (the point is not
    the paper's).
    """
    white = Whitened.of(problem)
    check_tau(white.tau)
    M = read_length(num_examples, white.phi.dtype)
    phi, tau = white.phi, white.tau
    omega = ((M + 1) * phi + tau) / M
    top = jnp.argmax(phi)
    gain = phi[top] / omega[top]
    rest = jnp.sum(phi**2) - phi[top] ** 2
    labels = 2 * (tau**2 - phi[top] ** 2) / M + 2 * (1 + 2 / M) * white.square
    # The direction of the top eigenvector, in the coordinates of the inputs.
    back = einsum("ij,j->i", white.roots.inverse, white.basis[:, top])
    u = jnp.sqrt(gain) * back
    mean = jnp.asarray(problem.task_mean)
    parts = EffectiveParameters(
        mean,
        u,
        jnp.zeros((), u.dtype),
        -outer(mean, u),
        u,  # pyrefly: ignore
    )
    lost = phi**2 / omega
    excess = jnp.sum(lost.at[top].set(0))
    return SpuriousMinimum(parts, excess, gain**2 * labels - M * rest)


@calculator
def excess_profile(
    problem: LinearPopulation,
    num_examples: Count,
    angles: Float[ArrayLike, "_n"],
) -> Float[Array, "n"]:
    r"""Excess risk of an LTB on the arc from the spurious to the global minimum.

    .. math:: \alpha \mapsto \min_{A, g} \bigl( R - R_{\min} \bigr), \qquad
        q = \sqrt\tau \cos(\alpha)\, e_1, \quad v = \sin(\alpha), \quad c = \beta^*.

    At 0 it is ``spurious_minimum``, at pi / 2 a best LTB, and a hill between them is
    what a descent from the left would have to climb, in this plane, even with the best
    scores (A, g) at every point.

    Args:
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1.
        angles: The angles alpha.

    Returns:
        The excess at every angle.

    Example:
        >>> cov = jnp.diag(jnp.array([1.0, 0.05]))
        >>> task = LinearPopulation(jnp.eye(2), jnp.zeros(2), cov, 0.25)
        >>> ends = excess_profile(task, 2, jnp.array([0.0, jnp.pi / 2]))
        >>> [round(float(end), 6) for end in ends]
        [0.003448, 0.0]

    Source: Zhang, Wu and Bartlett (2024), remarks after Theorem 6.3.
    """
    check_shape("angles", angles, ("n",))
    white = Whitened.of(problem)
    check_tau(white.tau)
    M = read_length(num_examples, white.phi.dtype)
    # With beta* as c, the remaining problem has mean 0.
    reduced = Reduced.of(white, M)._replace(m=jnp.zeros_like(white.m))
    top = jnp.eye(problem.dim, dtype=white.phi.dtype)[jnp.argmax(white.phi)]

    def at(angle):
        return reduced.excess(
            jnp.sqrt(white.tau) * jnp.cos(angle) * top, jnp.sin(angle)
        )

    return jax.vmap(at)(jnp.asarray(angles, white.phi.dtype))
