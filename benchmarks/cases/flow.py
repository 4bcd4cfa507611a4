"""Gradient flow of GD-beta at d = 50 and of five heads, and SciPy on the same equation.

For GD-beta both integrate from (0, 0) until the excess risk is below 1e-10, in float64.
SciPy's LSODA (stiff and not) and RK45 get the right-hand side in NumPy with its matrix
products; a method is stopped after some seconds. Five heads flow over all plateaus to a
time that the predicted ends give. There is no floor: the number of steps depends on the
problem.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from benchmarks.suite import FLOAT64, Pair, case, disagreement
from icltheory import regression as reg
from icltheory.regression import LinearPopulation, flow, flow_bounds

DIM, M, TARGET = 50, 40, 1e-10
# Condition number of H, method, and its time limit in seconds.
SIZES = {
    f"condition {condition:g}, {method}": (condition, method, limit)
    for condition, limit in ((1.0, 10.0), (10.0, 12.0), (100.0, 12.0))
    for method in ("LSODA", "RK45")
}


def problem(condition: float) -> LinearPopulation:
    """Builds a problem with random axes, and eigenvalues of H of 1 to 1 / condition."""
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]
    H = (axes * np.geomspace(1, 1 / condition, DIM)) @ axes.T
    A, mean = rng.normal(size=(DIM, DIM)), rng.normal(size=DIM)
    return LinearPopulation((H + H.T) / 2, mean, A @ A.T / DIM, 0.25)


def start() -> reg.GDBeta:
    """Returns the start of the flow, the model that predicts 0."""
    return reg.GDBeta(jnp.zeros(DIM), jnp.zeros((DIM, DIM)))


def time_to_target(task: LinearPopulation) -> float:
    """Returns a time at which the excess risk of the flow is below the target."""
    H, first = np.asarray(task.input_cov), flow_bounds(start(), task, M, jnp.zeros(1))
    end = 30 / min(float(first.alpha), float(first.gamma) / 2)
    times = np.append(0, np.geomspace(1e-2 / np.linalg.norm(H, 2), end, 60))
    excess = np.asarray(flow(start(), task, M, times).excess)
    return float(times[np.argmax(excess < TARGET)])


def right_hand_side(task: LinearPopulation):
    """Returns the right-hand side of the flow in NumPy."""
    H, mean = np.asarray(task.input_cov), np.asarray(task.task_mean)
    Psi, noise = np.asarray(task.task_cov), np.asarray(task.noise_var)

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


def reached(path, end: float) -> str:
    """Says how far a path went, and in how many steps."""
    steps, excess = int(path.num_steps), float(path.excess[-1])
    return f"{steps} steps to t = {end:.3g}, excess {excess:.2g}"


class TooSlow(Exception):
    pass


def by_scipy(task, end: float, method: str, limit: float) -> np.ndarray | None:
    """Integrates the flow with a SciPy method, or returns None if it is stopped."""
    speed, begun = right_hand_side(task), time.perf_counter()

    def limited(t, z):
        if time.perf_counter() - begun > limit:
            raise TooSlow
        return speed(t, z)

    zero, given = np.zeros(DIM + DIM**2), {"rtol": 1e-8, "atol": 1e-12}
    try:
        return solve_ivp(limited, (0, end), zero, method, **given).y[:, -1]
    except TooSlow:
        return None


@case(f"GD-beta flow to excess {TARGET:g}, d = {DIM}, M = {M}", SIZES, FLOAT64)
def bench_flow(condition: float, method: str, limit: float) -> Pair:
    task = problem(condition)
    end = time_to_target(task)

    def integrate():
        return flow(start(), task, M, jnp.array([0.0, end]))

    def error(path, found):
        last = np.append(path.model.beta[-1], path.model.Gamma[-1])
        return disagreement(last, found)

    path = integrate()
    return Pair(
        integrate,
        lambda: by_scipy(task, end, method, limit),
        f"SciPy {method}",
        error=error,
        # The solvers were given a relative tolerance of 1e-8 per step.
        tolerance=1e-6,
        precision="float64",
        note=reached(path, end),
    )


N, HEADS = 16, 5
SCALES = {f"start of size {scale:g}": (scale,) for scale in (0.1, 0.01)}


def heads_problem(scale: float) -> tuple[reg.LinearPopulation, reg.Heads, float]:
    """Returns the tasks, the start, and a time after the last plateau."""
    population = reg.LinearPopulation(jnp.diag(jnp.array([2.0, 1.2, 0.7, 0.4])))
    model = reg.Heads.random(4, HEADS, scale, rank=1, key=jax.random.key(1))
    end = 2 * float(reg.head_times(model, population, N).times[-1]) + 200
    return population, model, end


def heads_by_scipy(population: reg.LinearPopulation, model: reg.Heads, end: float):
    """Integrates the flow by LSODA, and returns Gamma at the end."""
    H = np.asarray(population.input_cov)
    B, S = H @ H, ((N + 1) * H @ H + np.trace(H) * H) / N
    d = len(H)

    def parts(z):
        return z[:HEADS], *z[HEADS:].reshape(2, HEADS, d)

    def speed(_, z):
        v, K, Q = parts(z)
        D = 2 * (B - H @ ((v[:, None] * Q).T @ K) @ S)
        KD, QD = K @ D.T, Q @ D
        at = v[:, None]
        return np.concatenate([np.sum(Q * KD, 1), np.ravel(at * QD), np.ravel(at * KD)])

    start = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model)])
    given = {"method": "LSODA", "rtol": 1e-6, "atol": 1e-12}
    v, K, Q = parts(solve_ivp(speed, (0, end), start, **given).y[:, -1])
    return (v[:, None] * Q).T @ K


@case(f"flow of {HEADS} heads of rank 1 to the optimum, d = 4", SCALES, FLOAT64)
def bench_heads(scale: float) -> Pair:
    population, model, end = heads_problem(scale)

    def integrate():
        return reg.flow(model, population, N, jnp.array([0.0, end]))

    def error(path, found):
        last = jax.tree.map(lambda leaf: leaf[-1], path.model)
        return disagreement(last.Gamma, found)

    path = integrate()
    return Pair(
        integrate,
        lambda: heads_by_scipy(population, model, end),
        "SciPy LSODA",
        error=error,
        # The solvers were given a relative tolerance of 1e-6 per step.
        tolerance=1e-4,
        precision="float64",
        note=reached(path, end),
    )
