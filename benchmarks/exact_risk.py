"""Exact risks of linear transformer blocks, compared with simulation to equal accuracy.

Command
    python -m benchmarks.exact_risk

Half a minute on two cores. No floors: a call of a tenth of a millisecond is mostly the
call itself.
"""

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp

from benchmarks import _alone, _measure
from benchmarks._suite import BenchmarkRow, Budget, Case, each
from icltheory import regression as reg
from icltheory.regression import LinearPopulation

PROMPTS = 20_000
GROUP = "Exact risk of the best LTB, M = 2 d"
BATCH_GROUP = "1,000 (problem, M) pairs at d = 20 in one call"
LSA_GROUP = "Search for the best LSA, 16 starts, M = 40"


def measure(budget: Budget) -> Iterator[BenchmarkRow]:
    """Measures one risk, a thousand risks, and a search over models."""
    one = [
        Case(f"d {dim}, M {2 * dim}", seconds, functools.partial(against, dim, 2 * dim))
        for dim, seconds in {5: 3, 20: 3, 50: 6}.items()
    ]
    yield from each(GROUP, budget, one)
    many = {
        "risk of an LTB": lambda task, M: reg.risk(_block(20), task, M),
        "least risk of an LTB": lambda *given: reg.optimum(reg.LTB, *given).risk,
        "Gamma* and its risk": lambda *given: reg.optimum(reg.GDBeta, *given),
    }
    cases = [Case(n, 4, functools.partial(batched, f)) for n, f in many.items()]
    yield from each(BATCH_GROUP, budget, cases)
    cases = [Case(f"d {dim}", 6, functools.partial(search, dim)) for dim in (2, 20, 50)]
    yield from each(LSA_GROUP, budget, cases)


def problem(dim: int, seed: int = 0) -> LinearPopulation:
    """Draws a random problem with trace H = trace Psi = d."""
    keys = jax.random.split(jax.random.key(seed), 3)
    A, C = (jax.random.normal(key, (dim, dim)) / dim**0.5 for key in keys[:2])
    mean = jax.random.normal(keys[2], (dim,))
    return LinearPopulation(A @ A.T, mean, C @ C.T, 0.25)


def _block(dim: int) -> reg.LTB:
    weights = jax.random.normal(jax.random.key(4), (6, dim + 1, dim + 1))
    return reg.LTB(*(weights * (dim + 1) ** -0.75))


@jax.default_matmul_precision("highest")
def against(dim: int, M: int) -> BenchmarkRow:
    """Times the exact risk and a simulation to a relative accuracy of 1 %.

    A simulation of relative accuracy a needs (standard deviation / mean / a)^2 prompts,
    of which a batch is timed. Its own mean is too coarse to judge the exact risk, whose
    difference is that from float64.
    """
    task = problem(dim)
    model = reg.optimum(reg.LTB, task, M).model
    exact = jax.jit(lambda model, task: reg.risk(model, task, M))

    @jax.jit
    def simulate(key):
        prompt = task.sample(key, M, PROMPTS)
        answers = jax.vmap(model.predict)(prompt.X, prompt.y, prompt.x_query)
        losses = (answers - prompt.y_query) ** 2
        return jnp.mean(losses), jnp.std(losses)

    ours = _measure.seconds(lambda: exact(model, task), repeats=50)
    batch = _measure.seconds(lambda: simulate(jax.random.key(2)), repeats=3)
    with jax.enable_x64(True):
        widen = functools.partial(jax.tree.map, lambda x: jnp.asarray(x, jnp.float64))
        truth = float(reg.risk(widen(model), widen(task), M))
    error = _measure.disagreement(exact(model, task), truth)
    mean, spread = (float(x) for x in simulate(jax.random.key(3)))
    z = (mean - truth) / (spread / PROMPTS**0.5)
    prompts_needed = (spread / truth / 0.01) ** 2
    return BenchmarkRow(
        ours_s=ours,
        alternative="simulation to 1 %, compiled",
        alternative_s=prompts_needed / PROMPTS * batch,
        error=error,
        # The tolerance allows for float32 moments of d coordinates.
        tolerance=1e-4,
        note=f"alternative timed on {PROMPTS:,} of {prompts_needed:,.0f} prompts, "
        f"z = {z:.2f}; difference from float64",
    )


@jax.default_matmul_precision("highest")
def batched(function) -> BenchmarkRow:
    """Times one vmapped call for all problems against one compiled call per problem."""
    count, sample = 1000, 50
    tasks = jax.jit(jax.vmap(lambda seed: problem(20, seed)))(jnp.arange(count))
    lengths = jnp.arange(1, count + 1)
    together, alone = jax.jit(jax.vmap(function)), jax.jit(function)
    # On the host, since JAX would compile a slice for each problem.
    host = jax.device_get((tasks, lengths))
    items = [jax.tree.map(lambda x, i=i: x[i], host) for i in range(sample)]
    jax.block_until_ready(alone(*items[0]))
    waiting = lambda *item: jax.block_until_ready(alone(*item))  # noqa: E731
    found, theirs = _measure.part_of_loop(waiting, items, count)
    ours = _measure.seconds(lambda: together(tasks, lengths), repeats=3)
    part = jax.tree.map(lambda x: x[:sample], together(tasks, lengths))
    same = jax.tree.map(lambda *xs: jnp.stack(xs), *found)
    pairs = zip(*map(jax.tree.leaves, (part, same)), strict=True)
    return BenchmarkRow(
        ours_s=ours,
        alternative="a compiled call a problem",
        alternative_s=theirs,
        error=max(_measure.disagreement(a, b) for a, b in pairs),
        tolerance=1e-4,
        note=f"alternative timed on {sample} problems, scaled",
    )


@jax.default_matmul_precision("highest")
def search(dim: int) -> BenchmarkRow:
    """Times the search for the best LSA, which has no alternative to compare with."""
    task = problem(dim)
    function = functools.partial(_least_risk, task)
    program, facts = _measure.compiled(function, jnp.asarray(40))
    return BenchmarkRow(
        ours_s=_measure.seconds(lambda: program(jnp.asarray(40))),
        facts={"compile s": facts["compile s"]},
    )


def _least_risk(task: LinearPopulation, M):
    return reg.optimum(reg.LSA, task, M, key=jax.random.key(0)).risk


if __name__ == "__main__":
    _alone.main(measure)
