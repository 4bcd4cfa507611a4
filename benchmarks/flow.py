"""Gradient flow of GD-beta at d = 50, compared with SciPy on the same equation.

Command
    python -m benchmarks.flow

Integrates from (0, 0) until the excess risk is below 1e-10, in float64. SciPy's LSODA
(stiff and not) and RK45 get the right-hand side in NumPy with its matrix products; a
method is stopped after some seconds. A minute on two cores. No floor: the number of
steps depends on the problem.
"""

import functools
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from benchmarks import _alone, _measure
from benchmarks._suite import BenchmarkRow, Budget, Case, each
from icltheory import regression as reg
from icltheory.regression import LinearPopulation, flow, flow_bounds

DIM, M, TARGET = 50, 40, 1e-10
GROUP = f"GD-beta flow to excess {TARGET:g}, d = {DIM}, M = {M}"
# Condition number of H, time limit in seconds of a SciPy method, total seconds.
CONDITIONS = ((1.0, 10.0, 10), (10.0, 12.0, 18), (100.0, 12.0, 32))


def measure(budget: Budget) -> Iterator[BenchmarkRow]:
    """Measures problems of increasing stiffness."""
    cases = [
        Case(f"condition {c:g}", seconds, functools.partial(rows, c, limit))
        for c, limit, seconds in CONDITIONS
    ]
    yield from each(GROUP, budget, cases)


def problem(condition: float, mean_scale: float = 1.0) -> LinearPopulation:
    """Builds a problem with random axes, and eigenvalues of H of 1 to 1 / condition."""
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]
    H = (axes * np.geomspace(1, 1 / condition, DIM)) @ axes.T
    A = rng.normal(size=(DIM, DIM))
    mean = mean_scale * rng.normal(size=DIM)
    return LinearPopulation((H + H.T) / 2, mean, A @ A.T / DIM, 0.25)


def start() -> reg.GDBeta:
    """Returns the start of the flow, the model that predicts 0."""
    return reg.GDBeta(jnp.zeros(DIM), jnp.zeros((DIM, DIM)))


def time_to_target(task: LinearPopulation) -> float:
    """Returns a time at which the excess risk of the flow is below the target."""
    H, first = (
        np.asarray(task.input_cov),
        flow_bounds(start(), task, M, jnp.zeros(1)),
    )
    end = 30 / min(float(first.alpha), float(first.gamma) / 2)
    times = np.append(0, np.geomspace(1e-2 / np.linalg.norm(H, 2), end, 60))
    excess = np.asarray(flow(start(), task, M, times).excess)
    return float(times[np.argmax(excess < TARGET)])


def right_hand_side(task: LinearPopulation):
    """Returns the right-hand side of the flow in NumPy."""
    H, mean = np.asarray(task.input_cov), np.asarray(task.task_mean)
    Psi = np.asarray(task.task_cov)
    noise = np.asarray(task.noise_var)

    def speed(_, z):
        b, Gamma = z[:DIM] - mean, z[DIM:].reshape(DIM, DIM)
        Delta = Psi + np.outer(b, b)
        HD = H @ Delta
        HG = H @ Gamma
        Hb = H @ b
        Qb = Hb - HG @ Hb - H @ (Gamma.T @ Hb)
        Qb += (M + 1) / M * H @ (Gamma.T @ (HG @ Hb))
        Qb += np.sum(HG * (Gamma @ H)) / M * Hb
        spread = (M + 1) / M * HD @ H + (np.trace(HD) + noise) / M * H
        return -2 * np.append(Qb, (HG @ spread - HD @ H).ravel())

    return speed


class TooSlow(Exception):
    """Raised when a SciPy method exceeds its time limit."""


def by_scipy(task, end: float, method: str, limit: float):
    """Integrates the flow with a SciPy method; the result is None if it is stopped."""
    speed, begun = right_hand_side(task), time.perf_counter()

    def limited(t, z):
        if time.perf_counter() - begun > limit:
            raise TooSlow
        return speed(t, z)

    try:
        solved = solve_ivp(
            limited, (0, end), np.zeros(DIM + DIM**2), method, rtol=1e-8, atol=1e-12
        )
    except TooSlow:
        return None, limit
    return solved.y[:, -1], time.perf_counter() - begun


@jax.enable_x64(True)
def rows(condition: float, limit: float) -> list[BenchmarkRow]:
    """Measures our flow against each SciPy method on one problem."""
    task = problem(condition)
    end = time_to_target(task)
    integrate = functools.partial(flow, start(), task, M, jnp.array([0.0, end]))
    path, seconds = integrate(), _measure.seconds(integrate, repeats=3)
    last = np.append(path.model.beta[-1], path.model.Gamma[-1])
    note = f"{int(path.num_steps)} steps to t = {end:.3g}"
    note += f", excess {float(path.excess[-1]):.2g}"
    return [
        row(condition, last, seconds, note, method, *by_scipy(task, end, method, limit))
        for method in ("LSODA", "RK45")
    ]


def row(condition, ours, ours_s, note, method, found, found_s) -> BenchmarkRow:
    """Builds one row; the time of a stopped method is a lower bound."""
    if found is None:
        note += "; alternative stopped, its time is a lower bound"
    return BenchmarkRow(
        name=f"condition {condition:g}, {method}",
        ours_s=ours_s,
        alternative=f"SciPy {method}",
        alternative_s=found_s,
        precision="float64",
        error=None if found is None else _measure.disagreement(ours, found),
        # The solvers were given a relative tolerance of 1e-8 per step.
        tolerance=1e-6,
        note=note,
    )


if __name__ == "__main__":
    _alone.main(measure)
