"""Exact risk of a softmax head, and simulation to equal accuracy."""

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.suite import FLOAT64, Pair, case, named, simulated
from icltheory import regression as reg

PROMPTS = 20_000


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
