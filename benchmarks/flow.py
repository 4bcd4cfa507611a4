"""Gradient flow of GD-beta at d = 50, beside SciPy on the same equation.

Command
    python -m benchmarks.flow [condition numbers of H, e.g. 10 100]

Integrates from (0, 0) until the excess risk is below 1e-10, in float64. SciPy's LSODA
(stiff and not) and RK45 get the right-hand side in NumPy with its matrix products; a
method stops after a minute. A few minutes on two cores.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from benchmarks import _measure
from icltheory.regression import flow, ltb
from icltheory.regression.tasks import LinearRegression

DIM, M, TARGET, LIMIT = 50, 40, 1e-10, 60.0


def problem(condition: float, mean_scale: float = 1.0) -> LinearRegression:
    """Random axes, eigenvalues of H from 1 to 1 / condition, beta* random."""
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]
    H = (axes * np.geomspace(1, 1 / condition, DIM)) @ axes.T
    A = rng.normal(size=(DIM, DIM))
    mean = mean_scale * rng.normal(size=DIM)
    return LinearRegression((H + H.T) / 2, mean, A @ A.T / DIM, 0.25)


def start() -> ltb.GDBeta:
    """The model that predicts 0."""
    return ltb.GDBeta(jnp.zeros(DIM), jnp.zeros((DIM, DIM)))


def time_to_target(task: LinearRegression) -> float:
    """A time at which the excess is below the target, by the flow itself."""
    H, first = np.asarray(task.input_cov), flow.rates(task, M, start(), jnp.zeros(1))
    end = 30 / min(float(first.alpha), float(first.gamma) / 2)
    times = np.append(0, np.geomspace(1e-2 / np.linalg.norm(H, 2), end, 60))
    excess = np.asarray(flow.gradient_flow(task, M, start(), times).excess)
    return float(times[np.argmax(excess < TARGET)])


def right_hand_side(task: LinearRegression):
    """What a user would write in NumPy."""
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
    """Raised when a method has used up its time."""


def scipy_row(task: LinearRegression, end: float, method: str) -> tuple:
    """Seconds, evaluations and excess at the end."""
    speed, begun, calls = right_hand_side(task), time.perf_counter(), 0

    def limited(t, z):
        nonlocal calls
        calls += 1
        if time.perf_counter() - begun > LIMIT:
            raise TooSlow
        return speed(t, z)

    try:
        solved = solve_ivp(
            limited, (0, end), np.zeros(DIM + DIM**2), method, rtol=1e-8, atol=1e-12
        )
    except TooSlow:
        return None, calls, None
    z = solved.y[:, -1]
    model = ltb.GDBeta(jnp.asarray(z[:DIM]), jnp.asarray(z[DIM:].reshape(DIM, DIM)))
    excess = float(ltb.gd_beta_excess(model, task, M).total)
    return time.perf_counter() - begun, calls, excess


def rows(condition: float) -> list[list]:
    """Ours and SciPy's on one problem."""
    task = problem(condition)
    end = time_to_target(task)
    times = jnp.array([0.0, end])
    path = flow.gradient_flow(task, M, start(), times)
    seconds = _measure.seconds(
        lambda: flow.gradient_flow(task, M, start(), times), repeats=3
    )
    name = f"condition {condition:g}, t = {end:.3g}"
    found = [
        [f"{name}: ours", seconds, int(path.num_steps), float(path.excess[-1]), None]
    ]
    for method in ("LSODA", "RK45"):
        took, calls, excess = scipy_row(task, end, method)
        ratio = None if took is None else took / seconds
        found.append([f"{name}: SciPy {method}", took, calls, excess, ratio])
    return found


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    conditions = [float(value) for value in sys.argv[1:]] or [1.0, 10.0, 100.0]
    _measure.table(
        f"GD-beta flow to excess {TARGET:g}, d = {DIM}, M = {M}, float64, "
        f"{jax.devices()[0].device_kind}; - means stopped after {LIMIT:g} s",
        ["", "s", "steps (ours) / calls", "excess", "x ours"],
        [row for condition in conditions for row in rows(condition)],
    )


if __name__ == "__main__":
    main()
