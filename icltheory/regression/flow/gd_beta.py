"""Theorem 6.3: limit, conserved quantities and rates of the flow of GD-beta."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Float

from icltheory._calculators import calculator
from icltheory._pytree import pytree
from icltheory._typing import Array, Scalar
from icltheory.regression import landscape
from icltheory.regression._block_moments import InputRoots, Moments
from icltheory.regression._linalg import einsum
from icltheory.regression.flow._integrate import read_times
from icltheory.regression.flow._start import read_start
from icltheory.regression.gd_beta import GDBeta
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._population import Count

__all__ = ["FlowBounds", "gd_beta_limit", "gd_beta_rates"]


@calculator
def gd_beta_limit(
    problem: LinearPopulation, num_examples: Count, start: GDBeta
) -> GDBeta:
    r"""Limit of the gradient flow of a GD-beta (Theorem 6.3).

    .. math:: \beta_\infty = \beta_0 - P (\beta_0 - \beta^*), \qquad
        \Gamma_\infty = \Gamma_0 - P (\Gamma_0 - \Gamma^*) P,

    with P the projector on im(H). What the inputs do not span stays as it was at the
    start, along the whole path: (I - P) beta_t and Gamma_t - P Gamma_t P. The limit is
    a minimiser for every start, and (beta*, Gamma*) for positive definite H.

    Args:
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1.
        start: The model at time 0.

    Returns:
        The model at time infinity.

    Example:
        >>> H = jnp.diag(jnp.array([1.0, 0.0]))
        >>> task = LinearPopulation(H, jnp.ones(2), jnp.eye(2), 0.0)
        >>> end = gd_beta_limit(task, 8, GDBeta(jnp.zeros(2), jnp.ones((2, 2))))
        >>> end.beta.tolist(), end.Gamma.round(3).tolist()
        ([1.0, 0.0], [[0.8, 1.0], [1.0, 1.0]])

    Source: Zhang, Wu and Bartlett (2024), Theorem 6.3.
    """
    read_start(problem, num_examples, start)
    ends = landscape.minimizers(problem, num_examples)
    return ends.member(start.beta - ends.best.beta, start.Gamma - ends.best.Gamma)


@pytree
class FlowBounds:
    r"""Upper bounds along the gradient flow of a GD-beta.

    .. math:: \|P(\beta_t - \beta^*)\| \le \text{beta}_t \le \text{beta\_text}_t, \qquad
        \|P(\Gamma_t - \Gamma^*)P\|_F \le \text{Gamma}_t, \qquad
        R(\theta_t) - R_{\min} \le \text{excess}_t.

    Args:
        times: Times t.
        beta: Bound on the start with the sharp rate gamma / 2.
        beta_text: The same with the rate :math:`2\lambda_-/(M + 1)` of the paper's
            argument.
        Gamma: Bound on the preconditioner.
        excess: Bound on the excess risk that follows from both.
        alpha: Rate at which the preconditioner decays by itself.
        gamma: Twice the rate of the start.
        forcing: C, how much the start disturbs the preconditioner.

    Returns:
        A frozen pytree.

    Example:
        >>> task = LinearPopulation.isotropic(2)
        >>> start = GDBeta(jnp.ones(2), jnp.zeros((2, 2)))
        >>> bounds = gd_beta_rates(task, 2, start, jnp.array([0.0, 1.0]))
        >>> bounds.beta.round(3).tolist(), float(bounds.alpha), float(bounds.gamma)
        ([1.414, 0.52], 2.0, 2.0)

    Source: Zhang, Wu and Bartlett (2024), Lemmas G.3, G.5 and G.6.
    """

    times: Float[Array, "T"]
    beta: Float[Array, "T"]
    beta_text: Float[Array, "T"]
    Gamma: Float[Array, "T"]
    excess: Float[Array, "T"]
    alpha: Scalar
    gamma: Scalar
    forcing: Scalar


@calculator
def gd_beta_rates(
    problem: LinearPopulation,
    num_examples: Count,
    start: GDBeta,
    times: Float[ArrayLike, "_T"],
) -> FlowBounds:
    r"""Proved rates of the gradient flow of a GD-beta, as curves (Theorem 6.3).

    With :math:`\lambda_1` and :math:`\lambda_-` the largest and the smallest positive
    eigenvalue of H,

    .. math:: \|P(\beta_t - \beta^*)\| \le e^{-\gamma t / 2} \|P(\beta_0 - \beta^*)\|,
        \qquad \gamma = \frac{8 \lambda_-}{M + 2},

    .. math:: N_t := \|P(\Gamma_t - \Gamma^*)P\|_F \le e^{-\alpha t} N_0
        + C \frac{e^{-\gamma t} - e^{-\alpha t}}{\alpha - \gamma}, \quad
        \alpha = \frac{2 \tau \lambda_-^2}{M}, \quad
        C = 4 \lambda_1^2 \|P(\beta_0 - \beta^*)\|^2,

    with C t e^{-alpha t} in place of the last term where alpha = gamma. The first rate
    is sharp (``landscape.curvature``); the paper's own argument gives
    :math:`2\lambda_-/(M + 1)` without the factor 2 in gamma, and its constants of
    Theorem 6.3 are not recovered from the text: only the structure, two cases by
    whether alpha = gamma, is. The bound on the excess is a consequence: with
    :math:`a = \|H^{1/2} \Gamma^* H^{1/2}\|_F + \lambda_1 N_t`,

    .. math:: R - R_{\min} \le \lambda_1 \bigl((1 + a)^2 + \tfrac{2 a^2}{M}\bigr)
        \|P(\beta_t - \beta^*)\|^2 + \lambda_1^2 \, \|\Omega\| N_t^2,

    where ||Omega|| is replaced by the bound ((M + 1) |Phi|_F + tau) / M.

    Args:
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1.
        start: The model at time 0.
        times: Increasing times from 0 or later.

    Returns:
        The curves and their constants. If H = 0 nothing moves and all are 0.

    Example:
        >>> task = LinearPopulation.isotropic(2)
        >>> start = GDBeta(jnp.ones(2), jnp.zeros((2, 2)))
        >>> bounds = gd_beta_rates(task, 2, start, jnp.array([0.0, 1.0]))
        >>> [round(float(bound), 3) for bound in bounds.Gamma]
        [0.566, 1.159]

    Source: Zhang, Wu and Bartlett (2024), Lemmas G.3, G.5 and G.6.
    """
    moments = read_start(problem, num_examples, start)
    t = read_times(times, jnp.result_type(float, start.dtype, problem.dtype))
    minimizers = landscape.minimizers(problem, num_examples)
    beta_0, Gamma_0 = minimizers.distance(start)
    largest, smallest = _extremes(InputRoots.of(moments.H).values)
    M = moments.M
    alpha, gamma = 2 * moments.tau * smallest**2 / M, 8 * smallest / (M + 2)
    forcing = 4 * largest**2 * beta_0**2
    beta = jnp.exp(-gamma / 2 * t) * beta_0
    Gamma = jnp.exp(-alpha * t) * Gamma_0 + forcing * _convolved(alpha, gamma, t)
    reach = _whitened_size(moments, minimizers.best) + largest * Gamma
    in_beta = largest * ((1 + reach) ** 2 + 2 * reach**2 / M) * beta**2
    return FlowBounds(
        times=t,
        beta=beta,
        beta_text=jnp.exp(-2 * smallest / (M + 1) * t) * beta_0,
        Gamma=Gamma,
        excess=in_beta + largest**2 * _omega(moments) * Gamma**2,
        alpha=alpha,
        gamma=gamma,
        forcing=forcing,
    )


def _convolved(alpha: Array, gamma: Array, t: Array) -> Array:
    """(e^{-gamma t} - e^{-alpha t}) / (alpha - gamma), also where they meet."""
    slow, gap = jnp.minimum(alpha, gamma), jnp.abs(alpha - gamma)
    x = gap * t
    mean = jnp.where(x > 0, -jnp.expm1(-x) / jnp.where(x > 0, x, 1), 1)
    return t * jnp.exp(-slow * t) * mean


def _extremes(values: Array) -> tuple[Array, Array]:
    """Largest and smallest positive eigenvalue; 0 and 0 where there is none."""
    largest = jnp.max(values)
    return largest, jnp.min(jnp.where(values > 0, values, largest))


def _whitened_size(moments: Moments, best: GDBeta) -> Array:
    """|H^{1/2} Gamma* H^{1/2}|_F."""
    H, Gamma = moments.H, best.Gamma
    return jnp.sqrt(einsum("ij,jk,kl,il->", H, Gamma, H, Gamma))


def _omega(moments: Moments) -> Array:
    """Upper bound on the largest eigenvalue of Omega, by tr(Phi^2) >= phi_1^2."""
    return ((moments.M + 1) * jnp.sqrt(moments.square) + moments.tau) / moments.M
