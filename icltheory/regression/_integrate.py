"""Integration by diffrax: solver, tolerances and error messages."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import Check, check_choice, check_positive_int, finite
from icltheory._typing import Array

SOLVERS = ("auto", "exponential", "explicit", "implicit")


class Path(NamedTuple):
    """States at given times, whether all were reached, and the number of steps."""

    states: Any
    succeeded: Array
    num_steps: Array


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
) -> Path:
    """Solves y' = field(y, args) from time 0, or y' = -rates y + field(y, args).

    The solver steps exactly on the times, so that no interpolation enters.
    """
    import diffrax  # it takes long to import

    method, wrapped = _method(diffrax, solver), args
    if rates is not None:
        from icltheory.regression._krogstad import SplitField

        wrapped = SplitField(rates, args)

    def vector_field(t, y, given):
        return field(y, given.args if rates is not None else given)

    controller = diffrax.ClipStepSizeController(
        diffrax.PIDController(rtol=rtol, atol=atol), step_ts=times
    )
    # Diffrax does not accept a span of length 0.
    end = jnp.maximum(times[-1], jnp.finfo(times.dtype).tiny)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(vector_field),
        method,
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
    return Path(solution.ys, succeeded, solution.stats["num_steps"])


def _method(diffrax: Any, solver: str) -> Any:
    if solver == "exponential":
        from icltheory.regression._krogstad import Krogstad

        return Krogstad()
    return diffrax.Kvaerno5() if solver == "implicit" else diffrax.Tsit5()


def increasing(name: str, times: Any, given: Any = None) -> Any:
    """The check of a vector of non-decreasing, non-negative times."""
    shape = np.shape(times)
    if len(shape) != 1 or shape[0] < 1:
        raise ValueError(f"{name}: expected shape (T,) with T >= 1, got {shape}")
    rises = Check(
        lambda t: (t[0] >= 0) & (t[1:] >= t[:-1]).all(),
        "increasing times from 0 or later",
    )
    return (rises & finite)(name, times)


def usable_times(times: Any, dtype: Any) -> Array:
    """The times of a vector that passed the check, and others made non-decreasing.

    The solver requires non-decreasing times; for traced times that decrease, the result
    is NaN.
    """
    usable = jnp.nan_to_num(jnp.asarray(times, dtype))
    return jax.lax.cummax(jnp.maximum(usable, 0))


def read_settings(
    solver: str, rtol: Any, atol: Any, max_steps: int, dtype: Any
) -> tuple[Array, Array]:
    """Returns the tolerances as arrays; defaults depend on the dtype."""
    check_choice("solver", solver, SOLVERS)
    check_positive_int("max_steps", max_steps)
    eps = float(jnp.finfo(dtype).eps)
    rtol = max(eps**0.5, 1e-6) if rtol is None else rtol  # 1e-6, 3.5e-4
    atol = eps**0.75 if atol is None else atol  # 1.8e-12, 6.4e-6
    return jnp.asarray(rtol, dtype), jnp.asarray(atol, dtype)
