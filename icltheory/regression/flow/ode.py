"""Gradient flow on the exact risk (Theorem 6.3)."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Float

from icltheory._calculators import calculator
from icltheory._typing import Array
from icltheory.regression import _block_moments as _formulas
from icltheory.regression._block_moments import Moments
from icltheory.regression._linalg import Number
from icltheory.regression.blocks import LSA, LTB, EffectiveParameters
from icltheory.regression.flow._coordinates import Coordinates, field, rates
from icltheory.regression.flow._integrate import (
    Path,
    integrate,
    read_settings,
    read_times,
)
from icltheory.regression.flow._start import read_start
from icltheory.regression.flow.trajectory import FlowTrajectory, record
from icltheory.regression.gd_beta import GDBeta
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._population import Count

__all__ = ["gradient_flow"]


@calculator(compiled=False)
def gradient_flow(
    problem: LinearPopulation,
    num_examples: Count,
    model: GDBeta | LSA | LTB | EffectiveParameters,
    times: Float[ArrayLike, "_T"],
    *,
    solver: str = "auto",
    rtol: Number | None = None,
    atol: Number | None = None,
    max_steps: int = 100_000,
) -> FlowTrajectory:
    r"""Gradient flow on the exact risk of a model.

    .. math:: \frac{d}{dt} \theta_t = -\nabla R(\theta_t), \qquad
        \text{for GD-beta} \quad \dot\beta = -2 Q(\Gamma)(\beta - \beta^*), \quad
        \dot\Gamma = 2 H \Delta H - 2 H \Gamma \Bigl[ \tfrac{M+1}{M} H \Delta H
        + \tfrac{\mathrm{tr}(H \Delta) + \sigma^2}{M} H \Bigr],

    with Delta = Psi + (beta - beta*)(beta - beta*)'. A flow on R / 2 is the same path
    at half the speed. For GD-beta it converges from every start (``gd_beta_limit``),
    at the rates of ``gd_beta_rates``; for an LTB it need not.

    GD-beta is integrated in the eigenbases in which the flow near the optimum is
    diagonal, by an exponential Runge-Kutta method that solves the diagonal exactly: the
    number of steps hardly depends on the condition number of H. It does grow where
    M |beta - beta*|_H^2 is far above tau at the start, unless H and Psi are multiples
    of I. Other models are integrated by Tsit5 (``"explicit"``) or, where the flow is
    stiff and the parameters few, by Kvaerno5 (``"implicit"``, whose steps cost the cube
    of the number of parameters). The program is compiled once for all problems, starts
    and times of the same shapes.

    Args:
        problem: The population (H, beta*, Psi, sigma^2), H and Psi possibly singular.
        num_examples: Examples M >= 1.
        model: The start: a GDBeta, LSA, LTB or EffectiveParameters.
        times: Increasing times from 0 or later.
        solver: ``"auto"``, ``"exponential"`` (GD-beta alone), ``"explicit"`` or
            ``"implicit"``.
        rtol: Relative tolerance of a step; 1e-6 in float64 if None.
        atol: Absolute tolerance of a step; 1.8e-12 in float64 if None.
        max_steps: Steps after which it gives up, and says so in ``succeeded``.

    Returns:
        The trajectory, with beta, Gamma, risk and excess at the times.

    Example:
        >>> task = LinearPopulation.isotropic(2)
        >>> start = GDBeta(jnp.ones(2), jnp.zeros((2, 2)))
        >>> path = gradient_flow(task, 3, start, jnp.array([0.0, 1.0, 100.0]))
        >>> [round(float(risk), 3) for risk in path.risk], path.Gamma.shape
        ([4.0, 1.142, 1.0], (3, 2, 2))

    Source: Zhang, Wu and Bartlett (2024), Theorem 6.3 and Appendix G.
    """
    read_start(problem, num_examples, model)
    dtype = jnp.result_type(float, model.dtype, problem.dtype)
    times = read_times(times, dtype)
    tolerances = read_settings(solver, rtol, atol, max_steps, dtype)
    is_gd_beta = isinstance(model, GDBeta)
    if solver == "auto":
        solver = "exponential" if is_gd_beta else "explicit"
    if solver == "exponential" and not is_gd_beta:
        raise ValueError(
            "solver: expected 'explicit' or 'implicit' for models other than GDBeta, "
            "got 'exponential'"
        )
    M = jnp.asarray(num_examples)
    return _solve(problem, M, model, times, *tolerances, solver, max_steps)


@functools.partial(jax.jit, static_argnums=(6, 7))
def _solve(problem, M, model, times, rtol, atol, solver, max_steps) -> FlowTrajectory:
    settings = {"rtol": rtol, "atol": atol, "max_steps": max_steps, "solver": solver}
    model = jax.tree.map(lambda leaf: jnp.asarray(leaf, times.dtype), model)
    run = _in_coordinates if solver == "exponential" else _as_it_is
    path = run(problem, M, model, times, settings)
    return record(problem, M, path.states, times, path.succeeded, path.num_steps)


def _in_coordinates(problem, M, model, times: Array, settings: Any) -> Path:
    at = Coordinates.of(problem, M, model)
    path = integrate(field, at.state(model), at, times, rates=rates, **settings)
    return path._replace(states=jax.vmap(at.model)(path.states))


def _as_it_is(problem, M, model, times: Array, settings: Any) -> Path:
    return integrate(_descend, model, Moments.of(problem, M), times, **settings)


def _descend(model: Any, moments: Moments) -> Any:
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
