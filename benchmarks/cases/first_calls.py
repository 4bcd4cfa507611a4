"""First and later calls of the most frequently used calculators, in float64.

Our time is that of a later call as a user writes it; the alternative is the same call
compiled by the caller with ``jax.jit``; the difference of the two is spent on reading
and checking the arguments. The first call, which traces and compiles, is in the note.
"""

import jax
import jax.numpy as jnp

from benchmarks.suite import FLOAT64, Pair, case, largest_error, once
from icltheory import bounds, linalg, noise, trajectory
from icltheory import regression as reg
from icltheory.attention import LinearAttentionStack

# A calculator, and its arguments of those that ``arguments`` makes.
CALLS = {
    "bounds.noisy_steps": (bounds.noisy_steps, "pools"),
    "noise.noise_spectrum": (noise.noise_spectrum, "pool"),
    "trajectory.implicit_gd": (trajectory.implicit_gd, "stack"),
    "trajectory.implicit_gd_norms": (trajectory.implicit_gd_norms, "stack"),
    "regression.optimum": (lambda *given: reg.optimum(reg.LTB, *given), "task"),
    "regression.gap": (reg.gap, "task"),
    "Ridge.predict_prefixes": (reg.Ridge(0.25).predict_prefixes, "prompt"),
    "optimum(LinearStep)": (lambda *given: reg.optimum(reg.LinearStep, *given), "task"),
    "linalg.condition_number": (linalg.condition_number, "matrix"),
}


def arguments(kind: str) -> tuple[tuple, dict]:
    """Makes the arguments of a call: 50 prompts of 40 tokens, six layers; d = 20."""
    normal, key = jax.random.normal, jax.random.key
    if kind == "matrix":
        return (jnp.eye(64) + jnp.ones((64, 64)),), {}
    if kind in ("task", "prompt"):
        task = reg.LinearPopulation.isotropic(20, 0.25)
        prompt = task.sample(key(2), 40, 64)
        return ((task, 40) if kind == "task" else (prompt.X, prompt.y)), {}
    stack = LinearAttentionStack(*normal(key(0), (3, 6, 4, 4)) / 3)
    pools = normal(key(1), (50, 40, 4))
    shots = () if kind == "stack" else (20,)
    return (stack, pools if kind == "pools" else pools[0], *shots), {"scale": 1 / 40}


@case("First and later calls", CALLS, FLOAT64)
def bench_call(function, kind: str) -> Pair:
    args, options = arguments(kind)
    if kind == "prompt":
        function = jax.vmap(function)

    def call():
        return jax.tree.leaves(function(*args, **options))

    jax.clear_caches()
    _, first = once(call)
    program = jax.jit(call).lower().compile()

    return Pair(
        call,
        program,
        "compiled by the caller",
        error=largest_error,
        tolerance=1e-9,
        precision="float64",
        facts={"first call s": first},
    )
