"""Integration by diffrax, with an exponential solver that is exact for linear decay.

Imported when a flow is integrated, as diffrax takes long to import.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import diffrax
import jax.numpy as jnp

from icltheory._typing import Array

TERMS = 18  # terms of the series, which suffice for float64 at |z| <= 1


def integrate(
    field: Callable[[Any, Any], Any],
    start: Any,
    args: Any,
    times: Array,
    *,
    solver: str,
    rates: Callable[[Array, Any], Array] | None = None,
    rtol: Any,
    atol: Any,
    max_steps: int,
) -> tuple[Any, Array, Array]:
    """Solves y' = field(y, args) from time 0; the exponential solver has the rates.

    Returns the states at the times, whether all were reached, and the number of steps.
    The solver steps exactly on the times, so that no interpolation enters.
    """
    methods = {"exponential": Krogstad, "implicit": diffrax.Kvaerno5}
    wrapped = args if rates is None else SplitField(rates, args)

    def vector_field(t, y, given):
        return field(y, given if rates is None else given.args)

    controller = diffrax.ClipStepSizeController(
        diffrax.PIDController(rtol=rtol, atol=atol), step_ts=times
    )
    # Diffrax does not accept a span of length 0.
    end = jnp.maximum(times[-1], jnp.finfo(times.dtype).tiny)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(vector_field),
        methods.get(solver, diffrax.Tsit5)(),
        t0=jnp.zeros_like(end),
        t1=end,
        dt0=None,
        y0=start,
        args=wrapped,
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=controller,
        max_steps=max_steps,
        throw=False,
    )
    succeeded = solution.result == diffrax.RESULTS.successful
    return solution.ys, succeeded, solution.stats["num_steps"]


class SplitField(NamedTuple):
    """Arguments of the solver: ``rates(y, args)`` >= 0 of each entry, and args."""

    rates: Callable[[Array, Any], Array]
    args: Any


class Krogstad(diffrax.AbstractAdaptiveSolver):
    """Krogstad's exponential Runge-Kutta method for y' = -rates * y + N(y), order 4.

    The first and last stages are shared; their difference estimates the error to order
    3. Where N is small beside the decay, a stiff problem costs no more steps than an
    easy one. The args are a ``SplitField``; rates are those at the start of each step.
    """

    term_structure: ClassVar = diffrax.AbstractTerm
    interpolation_cls: ClassVar = diffrax.LocalLinearInterpolation

    def order(self, terms):
        """Order of the method."""
        return 4

    def init(self, terms, t0, t1, y0, args):
        """Evaluates the right-hand side at the start."""
        return self.func(terms, t0, y0, args)

    def func(self, terms, t0, y0, args):
        """Evaluates the right-hand side."""
        return terms.vf(t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        """Takes one step and estimates its error."""
        h = t1 - t0
        rates = args.rates(y0, args.args)
        e, p1, p2, p3 = phi_functions(-h * rates)
        e_half, q1, q2, _ = phi_functions(-h / 2 * rates)

        def N(y):  # t0 serves for all times, as the flows are autonomous
            return terms.vf(t0, y, args) + rates * y

        N1 = solver_state + rates * y0
        N2 = N(e_half * y0 + h / 2 * q1 * N1)
        N3 = N(e_half * y0 + h * ((q1 / 2 - q2) * N1 + q2 * N2))
        N4 = N(e * y0 + h * ((p1 - 2 * p2) * N1 + 2 * p2 * N3))
        last = h * (4 * p3 - p2)
        middle = h * (2 * p2 - 4 * p3)
        y1 = e * y0 + h * (p1 - 3 * p2 + 4 * p3) * N1 + middle * (N2 + N3) + last * N4
        slope = terms.vf(t1, y1, args)
        error = last * (slope + rates * y1 - N4)
        dense = {"y0": y0, "y1": y1}
        return y1, error, dense, slope, diffrax.RESULTS.successful


def phi_functions(z: Array) -> tuple[Array, ...]:
    """exp(z) and phi_k(z) = (phi_{k-1}(z) - 1/(k-1)!) / z for k = 1, 2, 3, z <= 0."""
    near = jnp.abs(z) < 1
    small = jnp.where(near, z, 0)
    large = jnp.where(near, -1, z)
    series = jnp.ones_like(z)
    for k in range(TERMS, 3, -1):  # 6 phi_3 = 1 + z/4 (1 + z/5 (...))
        series = 1 + small / k * series
    third = series / 6
    second = 0.5 + small * third
    first = 1 + small * second
    far_first = jnp.expm1(large) / large
    far_second = (far_first - 1) / large
    far_third = (far_second - 0.5) / large
    pairs = (first, far_first), (second, far_second), (third, far_third)
    return jnp.exp(z), *(jnp.where(near, close, far) for close, far in pairs)
