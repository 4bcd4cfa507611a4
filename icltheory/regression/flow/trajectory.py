"""The record of a flow or a descent."""

from typing import Any

import jax

from icltheory._pytree import pytree
from icltheory._typing import Array, Bool, Float, Int
from icltheory.regression import excesses, landscape, measures
from icltheory.regression._linalg import einsum
from icltheory.regression.gd_beta import GDBeta
from icltheory.regression.population import LinearPopulation

__all__ = ["FlowTrajectory"]


@pytree
class FlowTrajectory:
    r"""A model at several times, with its exact risk.

    .. math:: R(\theta_t) = R_{\min} + \text{excess}_t.

    Args:
        times: Times t; for a descent the step size times the number of steps.
        model: The model at those times: its pytree, each leaf with a leading axis.
        risk: Exact risks, the query's noise included.
        excess: Risk beyond the least risk of a GD-beta or LTB, as a sum of squares, so
            that it has its own precision near the optimum.
        succeeded: Whether every time was reached with finite numbers. Where it is
            false, entries that were not reached are not finite.
        num_steps: Steps made, rejected ones included.

    Returns:
        A frozen pytree; ``beta`` and ``Gamma`` are those of a GD-beta.

    Example:
        >>> from icltheory.regression.flow import gradient_descent
        >>> task = LinearPopulation.isotropic(2)
        >>> start = GDBeta(jax.numpy.zeros(2), jax.numpy.zeros((2, 2)))
        >>> path = gradient_descent(task, 3, start, 0.1, 3)
        >>> float(path.risk[0]), path.Gamma.shape
        (2.0, (4, 2, 2))

    Source: Zhang, Wu and Bartlett (2024), Theorem 6.3.
    """

    times: Float[Array, "T"]
    model: Any
    risk: Float[Array, "T"]
    excess: Float[Array, "T"]
    succeeded: Bool[Array, ""]
    num_steps: Int[Array, ""]

    @property
    def beta(self) -> Float[Array, "*B T d"]:
        """Starts beta_t of a GD-beta."""
        return self.model.beta

    @property
    def Gamma(self) -> Float[Array, "*B T d d"]:
        """Preconditioners Gamma_t of a GD-beta."""
        return self.model.Gamma


def record(
    problem: LinearPopulation,
    num_examples: Any,
    models: Any,
    times: Array,
    succeeded: Array,
    num_steps: Array,
) -> FlowTrajectory:
    """Builds the trajectory of stacked models with their risks."""
    risk = jax.vmap(lambda m: measures.risk(m, problem, num_examples))(models)
    total = jax.vmap(lambda m: excess(m, problem, num_examples))(models)
    return FlowTrajectory(times, models, risk, total, succeeded, num_steps)


def excess(model: Any, problem: LinearPopulation, M: Any) -> Array:
    """Risk minus the least risk of an LTB, computed without cancellation."""
    if isinstance(model, GDBeta):
        return excesses.excess(_seen(model, problem, M), problem, M).total
    return excesses.excess(model, problem, M).total


def _seen(model: GDBeta, problem: LinearPopulation, M: Any) -> GDBeta:
    """Replaces a model by the optimum outside the range of the inputs.

    The frozen part outside of this range need not be small, and its rounding errors
    would remain in the excess.
    """
    ends = landscape.minimizers(problem, M)
    best, P = ends.best, ends.projector
    return GDBeta(
        best.beta + einsum("ij,j->i", P, model.beta - best.beta),
        best.Gamma + einsum("ij,jk,kl->il", P, model.Gamma - best.Gamma, P),
    )
