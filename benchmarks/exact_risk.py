"""Exact risks of linear transformer blocks, beside simulation to the same accuracy.

Command
    python -m benchmarks.exact_risk

Under a minute on two cores.
"""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _measure
from icltheory.regression import ltb
from icltheory.regression.tasks import LinearRegression

PROMPTS = 20_000


def problem(dim: int, seed: int = 0) -> LinearRegression:
    """A random problem with trace H = trace Psi = d."""
    keys = jax.random.split(jax.random.key(seed), 3)
    A, C = (jax.random.normal(key, (dim, dim)) / dim**0.5 for key in keys[:2])
    mean = jax.random.normal(keys[2], (dim,))
    return LinearRegression(A @ A.T, mean, C @ C.T, 0.25)


def against_simulation(dim: int, M: int) -> list:
    """The exact risk of the best LTB, and what a simulation costs.

    The exact risk in float32 is compared with float64. A simulation of relative
    accuracy a needs (standard deviation / mean / a)^2 prompts, of which a batch is
    timed.
    """
    task = problem(dim)
    model = ltb.gd_beta_to_ltb(ltb.optimal_gd_beta(task, M)[0])
    exact = jax.jit(lambda model, task: model.risk(task, M))
    seconds = _measure.seconds(lambda: exact(model, task))
    with jax.enable_x64(True):
        widen = partial(jax.tree.map, lambda leaf: np.asarray(leaf, np.float64))
        truth = float(widen(model).risk(widen(task), M))
    error = max(abs(float(exact(model, task)) / truth - 1), 1e-7)

    @jax.jit
    def simulate(key):
        prompt = task.sample(key, M, PROMPTS)
        answers = model.predict(prompt.X, prompt.y, prompt.x_query)
        losses = (answers - prompt.y_query) ** 2
        return jnp.mean(losses), jnp.std(losses)

    batch = _measure.seconds(lambda: simulate(jax.random.key(2)), repeats=3)
    mean, spread = (float(x) for x in simulate(jax.random.key(3)))
    z = (mean - truth) / (spread / PROMPTS**0.5)
    coarse, same = ((spread / truth / a) ** 2 / PROMPTS * batch for a in (0.01, error))
    name = f"LTB, d {dim}, M {M}"
    ratios = [coarse / seconds, same / seconds]
    return [name, 1e3 * seconds, error, z, coarse, ratios[0], same, ratios[1]]


def batches() -> list[list]:
    """A thousand problems and prompt lengths in one vmapped call."""
    count, dim = 1000, 20
    tasks = jax.jit(jax.vmap(lambda s: _traced(s, dim)))(jnp.arange(count))
    lengths = jnp.arange(1, count + 1)
    found = []
    for name, function in (
        ("risk of an LTB", lambda task, M: _block(dim).risk(task, M)),
        ("least risk of an LTB", ltb.minimal_risk),
        ("Gamma* and its risk", ltb.optimal_gd_beta),
    ):
        batched = jax.jit(jax.vmap(function))
        found.append(
            [name, 1e3 * _measure.seconds(lambda b=batched: b(tasks, lengths))]
        )
    return found


def best_lsa() -> list[list]:
    """The search for the best LSA."""
    found = []
    for dim in (2, 5, 20, 50):
        task = problem(dim)

        def search(M, task=task):
            return ltb.optimal_lsa(task, M, jax.random.key(0))[1]

        start = time.perf_counter()
        compiled = jax.jit(search)
        jax.block_until_ready(compiled(jnp.asarray(40)))
        first = time.perf_counter() - start
        seconds = _measure.seconds(lambda c=compiled: c(jnp.asarray(41)))
        found.append([f"d {dim}, 16 starts", seconds, first])
    return found


def _traced(seed, dim):
    return problem(dim, seed)


def _block(dim: int) -> ltb.LTB:
    weights = jax.random.normal(jax.random.key(4), (6, dim + 1, dim + 1))
    return ltb.LTB(*(weights * (dim + 1) ** -0.75))


def main() -> None:
    jax.config.update("jax_default_matmul_precision", "highest")
    device = jax.devices()[0].device_kind
    _measure.table(
        f"Exact risk, float32, {device}, beside simulations to 1 % and to its "
        f"own error ({PROMPTS:,} prompts timed)",
        ["", "exact ms", "error", "z", "1 % s", "ratio", "same error s", "ratio"],
        [against_simulation(dim, 2 * dim) for dim in (5, 20, 50)],
    )
    _measure.table(
        "1,000 (problem, M) pairs in one vmapped call, d 20, float32",
        ["", "ms"],
        batches(),
    )
    _measure.table("The best LSA, float32", ["", "s", "first call s"], best_lsa())


if __name__ == "__main__":
    main()
