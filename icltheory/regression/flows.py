"""Gradient flow on the exact risks of linear transformer blocks.

Zhang, Wu and Bartlett (2024), Theorem 6.3: the flow of GD-beta, and that of all
matrices of an LSA or LTB; Zhang, Frei and Bartlett (2024): that of linear attention
from a balanced start. Integrated by diffrax.
"""

from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import count, positive, scalar
from icltheory._core import Record, calculator
from icltheory._typing import Array, Bool, Float, Int
from icltheory.regression import _block_moments as _formulas
from icltheory.regression import (
    _flow_coordinates,
    excesses,
    landscape,
    trained_attention,
)
from icltheory.regression._block_moments import Moments, informative
from icltheory.regression._integrate import (
    increasing,
    integrate,
    read_settings,
    usable_times,
)
from icltheory.regression._linalg import einsum
from icltheory.regression.blocks import LSA, LTB, EffectiveParameters
from icltheory.regression.gd_beta import GDBeta
from icltheory.regression.population import LinearPopulation
from icltheory.regression.trained_attention import AttentionWeights

__all__ = ["Trajectory", "flow"]

MODELS = (GDBeta, LSA, LTB, EffectiveParameters, AttentionWeights)


class Trajectory(Record):
    r"""A model at several times, with its exact risk.

    .. math:: R(\theta_t) = R_{\min} + \text{excess}_t.

    Args:
        times: Times t; for a descent the step size times the number of steps.
        model: The model at those times: each leaf has a leading axis.
        risk: Exact risks.
        excess: Risk beyond the least risk of a GD-beta or LTB, as a sum of squares, so
            that it has its own precision near the optimum.
        succeeded: Whether every time was reached with finite numbers. Where it is
            false, entries that were not reached are not finite.
        num_steps: Steps made, rejected ones included.

    Source: Zhang, Wu and Bartlett (2024), Theorem 6.3.
    """

    times: Float[Array, "T"]
    model: Any
    risk: Float[Array, "T"]
    excess: Float[Array, "T"]
    succeeded: Bool[Array, ""]
    num_steps: Int[Array, ""]

    @classmethod
    def of(
        cls,
        models: Any,
        population: LinearPopulation,
        num_examples: Any,
        times: Array,
        succeeded: Array,
        num_steps: Array,
    ) -> "Trajectory":
        """Builds the trajectory of stacked models, with their risks."""
        k = jnp.asarray(num_examples, times.dtype)
        risk = jax.vmap(lambda model: model.exact_risk(population, k))(models)
        risk = risk + jnp.asarray(population.noise_var)
        excess = jax.vmap(lambda model: _excess(model, population, num_examples))(
            models
        )
        return cls(times, models, risk, excess, succeeded, num_steps)


def _excess(model: Any, population: LinearPopulation, num_examples: Any) -> Array:
    """Risk minus the least risk of an LTB, computed without cancellation."""
    if not isinstance(model, GDBeta):
        parts = model.effective()
        return excesses.excess(parts, population, num_examples).total
    # The frozen part outside of the range of the inputs need not be small, and its
    # rounding errors would remain in the excess.
    ends = landscape.minimizers(population, num_examples)
    best, P = ends.best, ends.projector
    seen = GDBeta(
        best.beta + einsum("ij,j->i", P, model.beta - best.beta),
        best.Gamma + einsum("ij,jk,kl->il", P, model.Gamma - best.Gamma, P),
    )
    return excesses.excess(seen, population, num_examples).total


def can_learn(name: str, population: LinearPopulation, given: Any) -> Any:
    """The check of a population for the model beside it."""
    model = given["model"]
    if not isinstance(model, MODELS):
        names = ", ".join(kind.__name__ for kind in MODELS)
        raise ValueError(f"model: expected one of {names}, got {type(model).__name__}")
    if population.dim != model.dim:
        raise ValueError(
            f"{name}: expected dimension {model.dim}, got {population.dim}"
        )
    if isinstance(model, AttentionWeights):
        standard = trained_attention.is_standard(name, population)
        return standard & trained_attention.is_balanced("model", model)
    return informative(name, population)


@calculator(
    static=("solver", "max_steps"),
    integers=("num_examples",),
    population=can_learn,
    num_examples=count(1),
    times=increasing,
    rtol=scalar & positive,
    atol=scalar & positive,
)
def flow(
    model: Any,
    population: LinearPopulation,
    num_examples: Any,
    times: Any,
    *,
    solver: str = "auto",
    rtol: Any = None,
    atol: Any = None,
    max_steps: int = 100_000,
) -> Trajectory:
    r"""Gradient flow on the exact risk of a model.

    .. math:: \frac{d}{dt} \theta_t = -\nabla R(\theta_t), \qquad
        \text{for GD-beta} \quad \dot\beta = -2 Q(\Gamma)(\beta - \beta^*), \quad
        \dot\Gamma = 2 H \Delta H - 2 H \Gamma \Bigl[ \tfrac{M+1}{M} H \Delta H
        + \tfrac{\mathrm{tr}(H \Delta) + \sigma^2}{M} H \Bigr],

    with Delta = Psi + (beta - beta*)(beta - beta*)', and for attention weights

    .. math:: \dot U = 2 u \Lambda^2 - 2 u^2 G \Lambda U \Lambda, \qquad
        \dot u = 2\, \mathrm{tr}\bigl(\Lambda^2 U^\top
        - u\, G \Lambda U \Lambda U^\top\bigr) .

    A flow on R / 2 is the same path at half the speed. For GD-beta it converges from
    every start (``flow_limit``), at the rates of ``flow_bounds``; for an LTB it need
    not.

    GD-beta and attention weights are integrated in eigenbases, in which the flow near
    the optimum is diagonal, by an exponential Runge-Kutta method that solves the
    diagonal exactly: the number of steps hardly depends on the condition number of H.
    It does grow where M |beta - beta*|_H^2 is far above tau at the start, unless H and
    Psi are multiples of I. Other models are integrated by Tsit5 (``"explicit"``) or,
    where the flow is stiff and the parameters few, by Kvaerno5 (``"implicit"``).

    Args:
        model: The start: a GDBeta, LSA, LTB, EffectiveParameters or AttentionWeights.
        population: The population; for AttentionWeights with mean 0 and task_cov I.
        num_examples: Examples M >= 1.
        times: Increasing times from 0 or later.
        solver: ``"auto"``, ``"exponential"`` (GDBeta and AttentionWeights),
            ``"explicit"`` or ``"implicit"``.
        rtol: Relative tolerance of a step; 1e-6 in float64 if None.
        atol: Absolute tolerance of a step; 1.8e-12 in float64 if None.
        max_steps: Steps after which it gives up, and says so in ``succeeded``.

    Example:
        >>> population = LinearPopulation.isotropic(2)
        >>> start = GDBeta(jnp.ones(2), jnp.zeros((2, 2)))
        >>> path = flow(start, population, 3, jnp.array([0.0, 1.0, 100.0]))
        >>> [round(float(risk), 3) for risk in path.risk], path.model.Gamma.shape
        ([4.0, 1.142, 1.0], (3, 2, 2))
        >>> start = AttentionWeights(jnp.array(1.0), jnp.eye(1))
        >>> one = LinearPopulation.isotropic(1)
        >>> path = flow(start, one, 1, jnp.array([0.0, 25.0]))
        >>> [f"{u:.3f}" for u in path.model.u], [f"{e:.4f}" for e in path.excess]
        (['1.000', '0.577'], ['1.3333', '0.0000'])

    Source: Zhang, Wu and Bartlett (2024), Theorem 6.3 and Appendix G; Zhang, Frei and
    Bartlett (2024), Theorem 4.1.
    """
    dtype = jnp.result_type(float, model.dtype, population.dtype)
    times = usable_times(times, dtype)
    rtol, atol = read_settings(solver, rtol, atol, max_steps, dtype)
    model = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), model)
    module, kind = _coordinates(model)
    if solver == "auto":
        solver = "explicit" if kind is None else "exponential"
    settings = {"rtol": rtol, "atol": atol, "max_steps": max_steps, "solver": solver}
    if solver != "exponential":
        moments = Moments.of(population, jnp.asarray(num_examples, dtype))
        path = integrate(minus_gradient, model, moments, times, **settings)
        models = path.states
    elif kind is None:
        raise ValueError(
            "solver: expected 'explicit' or 'implicit' for models other than GDBeta "
            "and AttentionWeights, got 'exponential'"
        )
    else:
        at, rates = kind.of(population, num_examples, model), module.decay_rates
        path = integrate(
            module.field, at.state(model), at, times, rates=rates, **settings
        )
        models = jax.vmap(at.model)(path.states)
    done = path.succeeded, path.num_steps
    return Trajectory.of(models, population, num_examples, times, *done)


def _coordinates(model: Any) -> tuple[Any, Any]:
    """The module and the class of coordinates with a nearly diagonal flow, if any."""
    if isinstance(model, GDBeta):
        return _flow_coordinates, _flow_coordinates.Coordinates
    if isinstance(model, AttentionWeights):
        return trained_attention, trained_attention.Reduced
    return None, None


def minus_gradient(model: Any, moments: Moments) -> Any:
    """Minus the gradient of the risk, with moments computed once."""
    if isinstance(model, GDBeta):
        gradient = _formulas.gd_beta_gradient(moments, model.beta, model.Gamma)
        return GDBeta(*(-part for part in gradient))

    def risk(model):
        parts = model.effective()
        return _formulas.effective_risk(
            moments, parts.c, parts.p, parts.v, parts.U, parts.u
        )

    return jax.tree.map(jnp.negative, jax.grad(risk)(model))
