"""Exact risks of transformer blocks, and simulation to an accuracy of 1 %.

There are no floors: a call of a tenth of a millisecond is mostly the call itself.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from benchmarks.suite import (
    EXACT,
    FLOAT64,
    Pair,
    case,
    largest_error,
    named,
    once,
    simulated,
)
from icltheory import regression as reg
from icltheory.regression import LinearPopulation
from icltheory.regression.pretraining import leading_excess

PROMPTS, COUNT, SAMPLE = 20_000, 1000, 50


def problem(dim: int, seed: int = 0) -> LinearPopulation:
    """Draws a random problem with trace H = trace Psi = d."""
    keys = jax.random.split(jax.random.key(seed), 3)
    A, C = (jax.random.normal(key, (dim, dim)) / dim**0.5 for key in keys[:2])
    mean = jax.random.normal(keys[2], (dim,))
    return LinearPopulation(A @ A.T, mean, C @ C.T, 0.25)


@case(
    "Exact risk of the best LTB, M = 2 d",
    named("d {}, M {}", ((5, 10), (20, 40), (50, 100))),
    EXACT,
)
def bench_risk(dim: int, M: int) -> Pair:
    """Compares the exact risk with a simulation; the truth is that in float64."""
    task = problem(dim)
    model = reg.optimum(reg.LTB, task, M).model
    exact = jax.jit(lambda model, task: reg.risk(model, task, M))

    @jax.jit
    def simulate(key):
        prompt = task.sample(key, M, PROMPTS)
        answers = jax.vmap(model.predict)(prompt.X, prompt.y, prompt.x_query)
        losses = (answers - prompt.y_query) ** 2
        return jnp.mean(losses), jnp.std(losses)

    with jax.enable_x64(True):
        widen = functools.partial(jax.tree.map, lambda x: jnp.asarray(x, jnp.float64))
        truth = float(reg.risk(widen(model), widen(task), M))
    mean, spread = (float(x) for x in simulate(jax.random.key(3)))
    z = (mean - truth) / (spread / PROMPTS**0.5)
    sizes = truth, spread, PROMPTS
    # The tolerance allows for float32 moments of d coordinates.
    look: Any = {"tolerance": 1e-4, "note": f"z = {z:.2f}; difference from float64"}
    return simulated(lambda: exact(model, task), simulate, *sizes, **look)


@case(
    "Cost of pretraining of the best LTB, N = 2 d",
    named("d {}, N {}", ((5, 10), (20, 40))),
    EXACT,
)
def bench_pretraining(dim: int, N: int) -> Pair:
    """Compares tr(A^-1 B) with its mean over prompts."""
    task = problem(dim)
    exact = jax.jit(lambda task: leading_excess(reg.LTB, task, N).constant)
    model = reg.optimum(reg.LTB, task, N).model.effective()
    flat, back = ravel_pytree(model)
    risk = jax.hessian(lambda theta: back(theta).exact_risk(task, jnp.asarray(N)))
    inverse = jnp.linalg.pinv(risk(flat) / 2, rtol=1e-5, hermitian=True)

    @jax.jit
    def simulate(key):
        prompt = task.sample(key, N, PROMPTS // 10)
        slope = jax.value_and_grad(lambda theta, *given: back(theta).predict(*given))
        given = prompt.X, prompt.y, prompt.x_query
        found, J = jax.vmap(slope, (None, 0, 0, 0))(flat, *given)
        sizes = (prompt.y_query - found) ** 2 * jnp.sum((J @ inverse) * J, axis=1)
        return jnp.mean(sizes), jnp.std(sizes)

    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), task)
        truth = float(leading_excess(reg.LTB, wide, N).constant)
    spread = float(simulate(jax.random.key(3))[1])
    sizes = truth, spread, PROMPTS // 10
    # The tolerance allows for float32 moments of d coordinates.
    look: Any = {"tolerance": 1e-3, "note": "difference from float64"}
    return simulated(lambda: exact(task), simulate, *sizes, **look)


def _block_risk(task, M):
    weights = jax.random.normal(jax.random.key(4), (6, 21, 21))
    return reg.risk(reg.LTB(*(weights * 21**-0.75)), task, M)


@case(
    f"{COUNT:,} (problem, M) pairs at d = 20 in one call",
    {
        "risk of an LTB": (_block_risk,),
        "least risk of an LTB": (lambda *given: reg.optimum(reg.LTB, *given).risk,),
        "Gamma* and its risk": (lambda *given: reg.optimum(reg.GDBeta, *given),),
    },
    EXACT,
)
def bench_many(function) -> Pair:
    tasks = jax.jit(jax.vmap(lambda seed: problem(20, seed)))(jnp.arange(COUNT))
    lengths = jnp.arange(1, COUNT + 1)
    together, alone = jax.jit(jax.vmap(function)), jax.jit(function)
    # On the host, since JAX would compile a slice for each problem.
    host = jax.device_get((tasks, lengths))
    items = [jax.tree.map(lambda x, i=i: x[i], host) for i in range(SAMPLE)]
    once(lambda: alone(*items[0]))

    def error(got, found):
        same = jax.tree.map(lambda *xs: jnp.stack(xs), *found)
        part = jax.tree.map(lambda x: x[:SAMPLE], got)
        return largest_error(part, same)

    return Pair(
        lambda: together(tasks, lengths),
        lambda: [jax.block_until_ready(alone(*item)) for item in items],
        "a compiled call per problem",
        (SAMPLE, COUNT, "problems"),
        error=error,
        tolerance=1e-4,
    )


@case("Exact risk of a softmax head", named("d {}, N {}", ((5, 40), (8, 160))), FLOAT64)
def bench_head(dim: int, N: int) -> Pair:
    """Compares the quadrature with a simulation, exact given the inputs.

    Twice as many prompts, without those of the timed batch, judge the result.
    """
    task = reg.LinearPopulation.isotropic(dim, 0.25)
    head = reg.SoftmaxHead(jnp.eye(dim) / 2.5, 2.0)
    exact = jax.jit(lambda head: reg.risk(head, task, N))

    @jax.jit
    def simulate(key):
        drawn = jax.random.normal(key, (PROMPTS, N + 1, dim))
        X, x = drawn[:, :-1], drawn[:, -1]
        a = jax.vmap(head.attention)(X, x)
        missed = jnp.einsum("sn,snd->sd", a, X) - x
        risks = jnp.sum(missed**2, axis=1) + 0.25 * (jnp.sum(a**2, axis=1) + 1)
        return jnp.mean(risks), jnp.std(risks)

    parts = [simulate(jax.random.key(seed)) for seed in (0, 1)]
    mean, spread = (float(sum(part) / 2) for part in zip(*parts, strict=True))
    z = (float(exact(head)) - mean) / (spread / (2 * PROMPTS) ** 0.5)
    look: Any = {"tolerance": 5 * spread / mean / (2 * PROMPTS) ** 0.5}
    look["note"] = f"z = {z:.2f}; difference from simulation"
    return simulated(lambda: exact(head), simulate, mean, spread, PROMPTS, **look)
