"""Where gradient flow goes and how fast: proved limits and bounds."""

from typing import Any

import jax.numpy as jnp

from icltheory._core import Record, calculator
from icltheory._typing import Array, Bool, Float, Scalar
from icltheory.regression._block_moments import OF_POPULATION, Moments
from icltheory.regression._linalg import quotient, seen_eigenvalues
from icltheory.regression.flows import can_learn, increasing, usable_times
from icltheory.regression.gradient_blocks import AttentionWeights, GDBeta, Scales
from icltheory.regression.landscape import minimizers
from icltheory.regression.population import LinearPopulation

__all__ = ["AttentionBounds", "FlowBounds", "flow_bounds", "flow_limit"]


@calculator(**OF_POPULATION | {"population": can_learn})
def flow_limit(model: Any, population: LinearPopulation, num_examples: Any) -> Any:
    r"""Limit of the gradient flow of a GDBeta or of AttentionWeights.

    .. math:: \beta_\infty = \beta_0 - P (\beta_0 - \beta^*), \qquad
        \Gamma_\infty = \Gamma_0 - P (\Gamma_0 - \Gamma^*) P,

    with P the projector on im(H), for every start of a GDBeta. What the inputs do not
    span stays as it was at the start. For attention weights

    .. math:: u_\infty U_\infty = G^{-1}, \qquad
        u_\infty^2 - \|U_\infty\|_F^2 = u_0^2 - \|U_0\|_F^2 ,

    which from a balanced start is u = tr(G^{-2})^{1/4}; that it is reached is proved
    from ``AttentionWeights.balanced``.

    Example:
        >>> H = jnp.diag(jnp.array([1.0, 0.0]))
        >>> task = LinearPopulation(H, jnp.ones(2), jnp.eye(2), 0.0)
        >>> end = flow_limit(GDBeta(jnp.zeros(2), jnp.ones((2, 2))), task, 8)
        >>> end.beta.tolist(), end.Gamma.round(3).tolist()
        ([1.0, 0.0], [[0.8, 1.0], [1.0, 1.0]])
        >>> three = LinearPopulation.isotropic(3)
        >>> start = AttentionWeights.balanced(three, 4, jnp.eye(3) / 3**0.25, 0.1)
        >>> end = flow_limit(start, three, 4)
        >>> round(float(end.u * end.U[0, 0]), 6), round(float(end.U[0, 0]), 6)
        (0.5, 0.537285)

    Source: Zhang, Wu and Bartlett (2024), Theorem 6.3; Zhang, Frei and Bartlett (2024),
    Theorem 4.1.
    """
    _check_kind(model)
    if isinstance(model, GDBeta):
        ends = minimizers(population, num_examples)
        best = ends.best
        return ends.member(model.beta - best.beta, model.Gamma - best.Gamma)
    scales, V = Scales.of(population, num_examples)
    size = jnp.sum(scales.g**-2.0)
    balance = model.u**2 - jnp.sum(model.U**2)
    u = jnp.sqrt((balance + jnp.sqrt(balance**2 + 4 * size)) / 2) * jnp.sign(model.u)
    return AttentionWeights(u, V / (u * scales.g)[None] @ V.T)


class FlowBounds(Record):
    """Upper bounds along the gradient flow of a GD-beta, by :func:`flow_bounds`.

    ``beta`` is that of |P (beta_t - beta*)| with the sharp rate gamma / 2 and
    ``beta_text`` with that of the paper's argument; ``Gamma`` bounds N_t and
    ``excess`` R - R_min; ``forcing`` is C.
    """

    times: Float[Array, "T"]
    beta: Float[Array, "T"]
    beta_text: Float[Array, "T"]
    Gamma: Float[Array, "T"]
    excess: Float[Array, "T"]
    alpha: Scalar
    gamma: Scalar
    forcing: Scalar


class AttentionBounds(Record):
    r"""Bounds along the gradient flow of attention weights from a balanced start.

    .. math:: |\nabla R(\theta_t)|^2 \ge \mu\, (R(\theta_t) - R_{\min}), \qquad
        u_t \ge u_{min}, \qquad
        R(\theta_t) - R_{\min} \le e^{-\mu t} (R(\theta_0) - R_{\min}).

    ``rate`` is mu and ``scale_floor`` u_min; they are proved where ``holds``: s^2 |G|
    sqrt(d) < 2 for a start u = ||U||_F = s with a U >= 0, and no noise.
    """

    times: Float[Array, "T"]
    excess: Float[Array, "T"]
    rate: Scalar
    scale_floor: Scalar
    holds: Bool[Array, ""]


@calculator(**OF_POPULATION | {"population": can_learn}, times=increasing)
def flow_bounds(
    model: Any, population: LinearPopulation, num_examples: Any, times: Any
) -> FlowBounds | AttentionBounds:
    r"""Proved rates of the gradient flow of a GDBeta or of AttentionWeights, as curves.

    For a GDBeta, with :math:`\lambda_1` and :math:`\lambda_-` the largest and the
    smallest positive eigenvalue of H,

    .. math:: \|P(\beta_t - \beta^*)\| \le e^{-\gamma t / 2} \|P(\beta_0 - \beta^*)\|,
        \qquad \gamma = \frac{8 \lambda_-}{M + 2},

    .. math:: N_t := \|P(\Gamma_t - \Gamma^*)P\|_F \le e^{-\alpha t} N_0
        + C \frac{e^{-\gamma t} - e^{-\alpha t}}{\alpha - \gamma}, \quad
        \alpha = \frac{2 \tau \lambda_-^2}{M}, \quad
        C = 4 \lambda_1^2 \|P(\beta_0 - \beta^*)\|^2,

    The first rate is sharp; the paper's own argument gives :math:`2\lambda_-/(M + 1)`.
    With :math:`a = \|H^{1/2} \Gamma^* H^{1/2}\|_F + \lambda_1 N_t`,

    .. math:: R - R_{\min} \le \lambda_1 \bigl((1 + a)^2 + \tfrac{2 a^2}{M}\bigr)
        \|P(\beta_t - \beta^*)\|^2 + \lambda_1^2 \, \|\Omega\| N_t^2,

    where ||Omega|| is replaced by the bound ((M + 1) |Phi|_F + tau) / M.

    For the attention weights u = s, U = s Theta Theta', without noise,

    .. math:: \mu = 2 s^2 \frac{K_1}{K_2}, \quad
        K_1 = |\Lambda \Theta|_F^2\, (2 - \sqrt d\, s^2 |G|_{op}), \quad
        K_2 = \sqrt d\, |\Lambda|_{op}^2\, \mathrm{tr}(G^{-1} \Lambda^{-1})\,
        \mathrm{tr}(\Lambda^{-1}), \quad
        u_{min} = \sqrt{\frac{s^2 K_1}{2 \sqrt d\, |\Lambda|_{op}^2}} .

    Example:
        >>> task = LinearPopulation.isotropic(2)
        >>> start = GDBeta(jnp.ones(2), jnp.zeros((2, 2)))
        >>> bounds = flow_bounds(start, task, 2, jnp.array([0.0, 1.0]))
        >>> bounds.beta.round(3).tolist(), float(bounds.alpha), float(bounds.gamma)
        ([1.414, 0.52], 2.0, 2.0)
        >>> [round(float(bound), 3) for bound in bounds.Gamma]
        [0.566, 1.159]
        >>> one = LinearPopulation.isotropic(1)
        >>> start = AttentionWeights(0.5, 0.5 * jnp.eye(1))
        >>> bounds = flow_bounds(start, one, 1, jnp.zeros(1))
        >>> round(float(bounds.rate), 6), bool(bounds.holds)
        (1.875, True)

    Source: Zhang, Wu and Bartlett (2024), Lemmas G.3, G.5 and G.6; Zhang, Frei and
    Bartlett (2024), Theorem 4.1 and its proof.
    """
    _check_kind(model)
    t = usable_times(times, jnp.result_type(float, model.dtype, population.dtype))
    bounds = _of_gd_beta if isinstance(model, GDBeta) else _of_attention
    return bounds(model, population, num_examples, t)


def _check_kind(model: Any) -> None:
    if not isinstance(model, GDBeta | AttentionWeights):
        raise ValueError(
            "model: expected a GDBeta or AttentionWeights, whose limit is known, got "
            f"{type(model).__name__}"
        )


def _of_gd_beta(start, population, num_examples, t) -> FlowBounds:
    moments = Moments.of(population, jnp.asarray(num_examples, t.dtype))
    ends, M = minimizers(population, num_examples), moments.M
    beta_0, Gamma_0 = ends.distance(start)
    values, _ = seen_eigenvalues(moments.H)
    largest = jnp.max(values)
    smallest = jnp.min(jnp.where(values > 0, values, largest))
    alpha, gamma = 2 * moments.tau * smallest**2 / M, 8 * smallest / (M + 2)
    forcing = 4 * largest**2 * beta_0**2
    beta = jnp.exp(-gamma / 2 * t) * beta_0
    Gamma = jnp.exp(-alpha * t) * Gamma_0 + forcing * _convolved(alpha, gamma, t)
    H, best = moments.H, ends.best.Gamma
    whitened = jnp.sqrt(jnp.sum((H @ best) * (best @ H)))
    reach = whitened + largest * Gamma
    in_beta = largest * ((1 + reach) ** 2 + 2 * reach**2 / M) * beta**2
    # The largest eigenvalue of Omega is at most this, by tr(Phi^2) >= phi_1^2.
    omega = ((M + 1) * jnp.sqrt(moments.square) + moments.tau) / M
    return FlowBounds(
        times=t,
        beta=beta,
        beta_text=jnp.exp(-2 * smallest / (M + 1) * t) * beta_0,
        Gamma=Gamma,
        excess=in_beta + largest**2 * omega * Gamma**2,
        alpha=alpha,
        gamma=gamma,
        forcing=forcing,
    )


def _convolved(alpha: Array, gamma: Array, t: Array) -> Array:
    """(e^{-gamma t} - e^{-alpha t}) / (alpha - gamma), also where they meet."""
    slow, gap = jnp.minimum(alpha, gamma), jnp.abs(alpha - gamma)
    x = gap * t
    return t * jnp.exp(-slow * t) * quotient(-jnp.expm1(-x), x, 1)


def _of_attention(start, population, N, t) -> AttentionBounds:
    at, V = Scales.of(population, N)
    s2, root = start.u**2, jnp.sqrt(jnp.asarray(population.dim, t.dtype))
    U = V.T @ start.U @ V
    margin = 2 - root * s2 * at.g[-1]
    # |Lambda Theta|_F^2 = tr(Lambda Theta Theta' Lambda)
    K_1 = jnp.sum(at.values**2 * jnp.diagonal(U)) / start.u * margin
    lam, largest = at.values, at.values[-1]
    K_2 = root * largest**2 * jnp.sum(1 / (at.g * lam)) * jnp.sum(1 / lam)
    rate, floor = 2 * s2 * K_1 / K_2, s2 * K_1 / (2 * root * largest**2)
    missed = start.u * U - jnp.diag(1 / at.g)
    excess = jnp.sum(at.pairs * missed**2)
    return AttentionBounds(
        times=t,
        excess=jnp.exp(-rate * t) * excess,
        rate=rate,
        scale_floor=jnp.sqrt(jnp.maximum(floor, 0)),
        holds=(margin > 0) & _is_small(start) & (population.noise_var == 0),
    )


def _is_small(start: AttentionWeights) -> Array:
    """Whether u = ||U||_F and U is positive semi-definite, up to rounding."""
    U, least = start.U, -1e-5 * start.u
    balanced = jnp.abs(start.u - jnp.sqrt(jnp.sum(U**2))) <= 1e-5 * start.u
    symmetric = jnp.max(jnp.abs(U - U.T)) <= -least
    return balanced & symmetric & (jnp.linalg.eigvalsh(U)[0] >= least)
