"""Exact risks of linear transformer blocks, and their gradients."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._typing import Array, Float, Scalar
from icltheory.regression._linalg import Matrix
from icltheory.regression.ltb import _formulas
from icltheory.regression.ltb._moments import Moments, check_dim, check_model
from icltheory.regression.ltb.gd_beta import GDBeta
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._population import Count

__all__ = ["curvature", "risk", "risk_gradient"]

Model = TypeVar("Model")


@calculator
def risk(model: Any, problem: LinearPopulation, num_examples: Count) -> Scalar:
    r"""Exact risk of a GDBeta, LSA, LTB or of EffectiveParameters.

    For GD-beta with b = beta - beta* and Delta = Psi + bb'

    .. math:: R = \sigma^2 + \mathrm{tr}(H \Delta) - 2\,\mathrm{tr}(H \Gamma H \Delta)
        + \mathrm{tr}\Bigl( \Gamma^\top H \Gamma \Bigl[ \tfrac{M+1}{M} H \Delta H
        + \tfrac{\mathrm{tr}(H \Delta) + \sigma^2}{M} H \Bigr] \Bigr),

    and for an LTB, in whitened coordinates q = H^{1/2}(p + v beta*), A =
    H^{1/2}(U + beta* u')H^{1/2}, g = H^{1/2} u, m = H^{1/2}(beta* - c), B = vA + qg',
    Phi = H^{1/2} Psi H^{1/2}, tau = tr(Phi) + sigma^2, Omega = ((M+1) Phi + tau I)/M,

    .. math:: R = \sigma^2 + \mathrm{tr}(\Phi) - 2\,\mathrm{tr}(B^\top \Phi)
        + \mathrm{tr}(B^\top \Omega B) + \|A^\top q + v \tau g - m\|^2
        + \tfrac1M \bigl( \|A^\top q\|^2 + \|A\|_F^2 \|q\|^2
        + 4 v\, g^\top A^\top \Phi q \bigr)
        + v^2 \|g\|^2 \bigl( \tfrac{2 \tau^2}{M}
        + 2 (1 + \tfrac2M)\, \mathrm{tr}(\Phi^2) \bigr),

    evaluated without roots or inverses of H, so H and Psi may be singular and sigma
    may be 0. The models hold no prompt length and no population: another ``problem``
    or another M is the risk under distribution shift or at another length. It counts
    the noise of the query label. Cost O(d^3); differentiable in everything.

    Args:
        model: The model.
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1; may be traced.

    Returns:
        The risk.

    Example:
        >>> task = LinearPopulation.isotropic(5)
        >>> step = GDBeta(jnp.zeros(5), 20 / 26 * jnp.eye(5))
        >>> round(float(risk(step, task, 20)), 4), round(float(risk(step, task, 5)), 4)
        (1.1538, 3.8166)

    Source: Zhang, Wu and Bartlett (2024), Appendices B (LSA), C (GD-beta) and D (LTB).
    """
    check_model(model, "risk")
    return model.risk(problem, num_examples)


@calculator
def risk_gradient(
    model: Model, problem: LinearPopulation, num_examples: Count
) -> Model:
    r"""Gradient of the exact risk in the parameters of the model.

    .. math:: \nabla_\beta R = 2\, Q(\Gamma) (\beta - \beta^*), \quad
        \nabla_\Gamma R = 2 H \Gamma \Bigl[ \tfrac{M+1}{M} H \Delta H
        + \tfrac{\mathrm{tr}(H \Delta) + \sigma^2}{M} H \Bigr] - 2 H \Delta H

    for GD-beta (Delta as in ``risk``); other models by differentiation of their risk.

    Args:
        model: A GDBeta, LSA, LTB or EffectiveParameters.
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1; may be traced.

    Returns:
        The gradient, of the model's type.

    Example:
        >>> task = LinearPopulation.isotropic(5)
        >>> best = GDBeta(jnp.zeros(5), 20 / 26 * jnp.eye(5))
        >>> bool(jnp.abs(risk_gradient(best, task, 20).Gamma).max() < 1e-6)
        True

    Source: Zhang, Wu and Bartlett (2024), Appendix G.
    """
    check_model(model, "risk")
    check_dim(problem, model.dim)  # pyrefly: ignore[missing-attribute]
    moments = Moments.of(problem, num_examples)
    if not isinstance(model, GDBeta):
        return jax.grad(lambda m: m.risk(problem, num_examples))(model)
    beta, Gamma = jnp.asarray(model.beta), jnp.asarray(model.Gamma)
    gradient = _formulas.gd_beta_gradient(moments, beta, Gamma)
    return GDBeta(*gradient)  # pyrefly: ignore


@calculator
def curvature(
    problem: LinearPopulation, num_examples: Count, Gamma: Matrix
) -> Float[Array, "d d"]:
    r"""Curvature of the risk of GD-beta in beta, and how small it can be.

    .. math:: Q(\Gamma) = \mathbb{E}\,(I - \Gamma S)^\top H (I - \Gamma S)
        = H - H \Gamma H - H \Gamma^\top H + \tfrac{M+1}{M} H \Gamma^\top H \Gamma H
        + \tfrac{\mathrm{tr}(\Gamma^\top H \Gamma H)}{M} H
        \;\succeq\; \tfrac{2}{M+2} H

    for every Gamma, with equality where :math:`H^{1/2} \Gamma H^{1/2}` is M / (M + 2)
    times a projection on one direction. Completing the square, as the paper does, gives
    1 / (M + 1).

    Args:
        problem: The population; only H matters.
        num_examples: Examples M >= 1.
        Gamma: The preconditioner.

    Returns:
        Q(Gamma), symmetric.

    Example:
        >>> task = LinearPopulation.isotropic(3)
        >>> Q = curvature(task, 2, jnp.diag(jnp.array([0.5, 0.0, 0.0])))
        >>> Q.diagonal().tolist()
        [0.5, 1.125, 1.125]

    Source: Zhang, Wu and Bartlett (2024), Appendix G.
    """
    check_shape("Gamma", Gamma, (problem.dim, problem.dim))
    moments = Moments.of(problem, num_examples)
    return _formulas.curvature(moments, jnp.asarray(Gamma, moments.H.dtype))
