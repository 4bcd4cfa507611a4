"""Gradient flow of five heads over all plateaus, and when they end, beside SciPy.

SciPy's LSODA integrates the same equation in NumPy; the predicted ends take its path's
place. There is no floor: the number of steps depends on the problem.
"""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from benchmarks.suite import FLOAT64, Pair, case, disagreement
from icltheory import regression as reg

N, HEADS = 16, 5
SIZES = {f"start of size {scale:g}": (scale,) for scale in (0.1, 0.01)}


def problem(scale: float) -> tuple[reg.LinearPopulation, reg.Heads, float]:
    """Returns the tasks, the start, and a time after the last plateau."""
    population = reg.LinearPopulation(jnp.diag(jnp.array([2.0, 1.2, 0.7, 0.4])))
    model = reg.Heads.random(4, HEADS, scale, rank=1, key=jax.random.key(1))
    end = 2 * float(reg.head_times(model, population, N).times[-1]) + 200
    return population, model, end


def by_scipy(population: reg.LinearPopulation, model: reg.Heads, end: float):
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


@case(f"flow of {HEADS} heads of rank 1 to the optimum, d = 4", SIZES, FLOAT64)
def bench_heads(scale: float) -> Pair:
    population, model, end = problem(scale)

    def integrate():
        return reg.flow(model, population, N, jnp.array([0.0, end]))

    def error(path, found):
        return disagreement(
            jax.tree.map(lambda leaf: leaf[-1], path.model).Gamma, found
        )

    path = integrate()
    return Pair(
        integrate,
        lambda: by_scipy(population, model, end),
        "SciPy LSODA",
        error=error,
        # The solvers were given a relative tolerance of 1e-6 per step.
        tolerance=1e-4,
        precision="float64",
        note=f"{int(path.num_steps)} steps to t = {end:.3g}, "
        f"excess {float(path.excess[-1]):.2g}",
    )
