"""Calculators on 1,000 and 4,000 prompts (64,000 on an accelerator), and NumPy.

Ours takes a batch at a time in one compiled program, the alternative is a loop.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cases.bounds import bound_of, numpy_bound, numpy_layers
from benchmarks.cases.trajectory import numpy_norms
from benchmarks.suite import FLOAT64, Pair, case, compiled, disagreement, on_gpu
from icltheory import noise, pruning, trajectory
from icltheory.attention import LinearAttentionStack
from icltheory.batching import in_batches
from tests import theory_cases

L, N, n = 4, 40, 6
BATCH, COMPARE, RANK = 500, 20, 3
GROUP = f"Theory on many prompts, n {n}, N {N}, L {L}"


def problem(prompts: int, dtype: Any) -> tuple[LinearAttentionStack, jax.Array]:
    """Draws a stack whose updates are small, and prompts for it."""
    weights, H = theory_cases.stack_and_tokens(L, N, n, prompts)
    W_V, W_K, W_Q = (jnp.asarray(W, dtype) for W in weights)
    return LinearAttentionStack(0.1 * W_V, W_K, W_Q), jnp.asarray(H, dtype)


def norms(stack, H):
    return trajectory.implicit_gd_norms(stack, H, scale=1 / N).G


def spectrum(stack, H):
    return noise.noise_spectrum(stack, H, N // 2, scale=1 / N).eigenvalues[:, :5]


def table(stack, H):
    found = pruning.depth_table(stack, H, "W_V", pruning.Rank(RANK), scale=1 / N)
    return jnp.concatenate([found.G, found.G_unpruned[None]])


def bound(stack, H):
    return bound_of(N // 2, N)(stack, H).value


def plain_norms(stack, H, W_V=None) -> np.ndarray:
    """Computes the norms of G_t with n x n matrices in NumPy."""
    W_V = stack.W_V if W_V is None else W_V
    host = [np.asarray(a) for a in (W_V, stack.W_K, stack.W_Q, H)]
    return numpy_norms(host[0] / N, *host[1:])[:, 1]


def plain_spectrum(stack, H) -> np.ndarray:
    """Computes the five largest eigenvalues of each C_t from the dense matrix."""
    layers = numpy_layers(stack, H, N // 2)
    return np.array([np.linalg.eigvalsh(C)[::-1][:5] for _, C in layers])


def plain_table(stack, H) -> np.ndarray:
    """Computes the norms with each layer's value matrix truncated in turn."""
    rows, W_V = [], np.asarray(stack.W_V)
    for k in range(L):
        U, s, Vt = np.linalg.svd(W_V[k])
        cut = W_V.copy()
        cut[k] = (U[:, :RANK] * s[:RANK]) @ Vt[:RANK]
        rows.append(plain_norms(stack, H, cut))
    return np.array([*rows, plain_norms(stack, H)])


CALCULATORS: dict[str, tuple[Callable, Callable]] = {
    "Norms": (norms, plain_norms),
    "Noise spectrum": (spectrum, plain_spectrum),
    "Theorem 2": (bound, lambda stack, H: numpy_bound(stack, H, N // 2)),
    "Remark 5's table": (table, plain_table),
}
SIZES = {
    f"{name}, {size:,} prompts": (name, size)
    for size in (1000, 64_000 if on_gpu() else 4000)
    for name in CALCULATORS
}


def many(name: str, prompts: int, dtype: str = "float32") -> Pair:
    function, plain = CALCULATORS[name]
    stack, H = problem(prompts, dtype)
    program = jax.jit(jax.vmap(function, (None, 0)))
    # On the host, since NumPy does not wait for copies from a device.
    host, some = jax.device_get((stack, H[:COMPARE]))
    _, facts = compiled(program, stack, H[:BATCH])
    return Pair(
        lambda: in_batches(lambda some: program(stack, some), BATCH, H),
        lambda: np.array([plain(host, one) for one in some]),
        "NumPy, a prompt at a time",
        (COMPARE, prompts, "prompts"),
        error=lambda got, found: disagreement(got[:COMPARE], found),
        tolerance=1e-4 if dtype == "float32" else 1e-9,
        precision=dtype,
        facts={f"{BATCH} prompts MiB": facts.get("MiB", float("nan"))},
        rates={"prompts/s": prompts},
    )


bench_many = case(GROUP, SIZES)(many)
doubled = {"Theorem 2, 1,000 prompts, float64": ("Theorem 2", 1000, "float64")}
bench_many_doubled = case(GROUP, doubled, FLOAT64)(many)
