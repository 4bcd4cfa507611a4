"""Recurrent learners on long prompts: chunks of matrix products, and one by one."""

import functools

import jax
import jax.numpy as jnp

from benchmarks.machine import floor
from benchmarks.suite import EXACT, Pair, case, disagreement, nbytes
from icltheory import regression as reg

PROMPTS, POINTS, DIM, CHUNK = 16, 2048, 64, 64
# In a chunk: products of queries and keys with the chunk's keys and with the state.
_CHUNKED = POINTS * (4 * CHUNK * DIM + 6 * DIM)
LEARNERS = {
    "linear attention": (reg.GatedLinearAttention, (1 / POINTS, 1.0), _CHUNKED),
    "gated delta rule": (reg.DeltaRule, (0.25 / DIM, 0.99), _CHUNKED),
}


@case(
    f"Chunks of {CHUNK}, {PROMPTS} prompts of {POINTS:,} points, d = {DIM}",
    LEARNERS,
    EXACT,
)
def bench_chunks(kind, settings, flops) -> Pair:
    """Compares answers after every prefix in chunked and in recurrent form."""
    task = reg.LinearPopulation.isotropic(DIM, 0.25, jnp.float32)
    prompt = task.sample(jax.random.key(0), POINTS - 1, PROMPTS).prefixes()
    rule = kind(*settings)
    chunked = functools.partial(reg.chunked_predictions, rule, chunk_size=CHUNK)
    ours = jax.jit(jax.vmap(chunked))
    recurrent = jax.jit(jax.vmap(rule.predict_prefixes))
    return Pair(
        lambda: ours(prompt.X, prompt.y),
        lambda: recurrent(prompt.X, prompt.y),
        "an example at a time, compiled",
        floor=floor(PROMPTS * flops, nbytes(prompt.X, prompt.y, prompt.y)),
        error=disagreement,
        # Both sum 2,048 float32 terms, in different orders.
        tolerance=1e-4,
    )
