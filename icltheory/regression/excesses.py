"""The excess risk of a block over the best one, as a sum of squares."""

from typing import Any

import jax.numpy as jnp

from icltheory._checks import count
from icltheory._core import Record, calculator
from icltheory._typing import Scalar
from icltheory.regression._block_moments import (
    Moments,
    best_step,
    centred,
    check_dim,
    informative,
    outer,
    tensor_cross,
    weighted,
)
from icltheory.regression._linalg import einsum
from icltheory.regression.blocks import EffectiveParameters
from icltheory.regression.gd_beta import GDBeta
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors import LinearStep

__all__ = ["Excess", "excess"]


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

    Args:
        preconditioner: Cost of the wrong step (I).
        start: Cost of the wrong start, and of reading y'y (III).
        fluctuation: Cost of the cubic terms in the data (II).
        drift: Variance of the start that the values make (IV).

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


@calculator(integers=("num_examples",), population=informative, num_examples=count(0))
def excess(model: Any, population: LinearPopulation, num_examples: Any) -> Excess:
    r"""Excess risk over the best LTB, with its own precision near the optimum.

    For a GD-beta the three last parts add up to :math:`b^\top Q(\Gamma)\, b`, the cost
    of the start b = beta - beta*, and the first is :math:`\mathrm{tr}(D^\top H D\,
    H^{1/2} \Omega H^{1/2})` with :math:`D = \Gamma - \Gamma^*`. Cost O(d^3). Of a
    linear step only the second moment of the tasks matters: its excess over the best
    linear step is that on ``population.with_(task_mean=0 * mean,
    task_cov=population.second_moment)``.

    Args:
        model: A LinearStep, GDBeta, LSA, LTB or EffectiveParameters.
        population: The population.
        num_examples: Number N of examples, 0 or more; may be traced.

    Example:
        >>> from icltheory.regression.gd_beta import GDBeta
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
    H, M, tau = moments.H, moments.M, moments.tau
    Gamma, _ = best_step(H, moments.Psi, moments.noise_var, M)
    v, u = parts.v, parts.u
    q, A = centred(moments, parts.p, v, parts.U, u)
    D = v * A + outer(q, u) - Gamma.T
    mixed = einsum("ji,jk,k->i", A, H, q)
    read_out = parts.c - moments.mean
    start = jnp.where(given, mixed + v * tau * u, 0) + read_out
    labels = v**2 * weighted(H, u)
    cubic = tensor_cross(moments, q, v, A, u) + 4 * labels * moments.square
    read = labels * (2 * tau**2 / M + 2 * moments.square)
    return Excess(
        jnp.where(given, einsum("ji,jk,kl,li->", D, moments.H_Omega_H, D, H), 0),
        weighted(H, start) + jnp.where(given, read, 0),
        jnp.where(given, cubic / M, 0),
        jnp.where(given, weighted(H, mixed) / M, 0),
    )


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
