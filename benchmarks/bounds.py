"""Theorem 2 without n^2 x n^2 matrices, beside its dense evaluation in NumPy.

Command
    python -m benchmarks.bounds

About a minute on two cores.
"""

import time

import jax
import numpy as np

from benchmarks import _measure
from icltheory.attention import LinearAttentionStack
from icltheory.bounds import theorem2

JITTER = 1e-4


def problem(L: int, N: int, n: int, prompts: int = 1):
    """A random stack whose first update is small, and prompts for it."""
    keys = jax.random.split(jax.random.key(0), 4)
    W_V, W_K, W_Q = jax.random.normal(keys[0], (3, L, n, n)) / n**0.5
    H = jax.random.normal(keys[1], (prompts, N, n))
    return LinearAttentionStack(0.02 * W_V, W_K, W_Q), H


def numpy_bound(stack, H, shots: int) -> float:
    """What a reader of the paper would write: C_t as a matrix, jitter and all."""
    W_V, W_K, W_Q = (np.asarray(a) for a in (stack.W_V, stack.W_K, stack.W_Q))
    H = np.asarray(H)
    N, n = H.shape
    d, P, total = n * n, np.eye(n, dtype=H.dtype), 0.0
    for V, K, Q in zip(W_V, W_K, W_Q, strict=True):
        z = np.stack([(np.outer(V @ h, K @ h) @ Q @ P).ravel() for h in H])  # N/N = 1
        G = z.mean(axis=0)
        C = z.T @ z / N - np.outer(G, G)
        C *= (N - shots) / (shots * (N - 1))
        A_1 = G @ G + np.trace(C) + d * JITTER
        values = np.linalg.eigvalsh(C)
        total += d * np.log(A_1 / d) - np.sum(np.log(np.maximum(values, 0) + JITTER))
        G = G.reshape(n, n)
        update = G @ np.linalg.inv(P)
        H, P = H + H @ update.T, P + G
    return float(np.sqrt(total / N))


def ours(shots: int, N: int):
    """The bound of the ambient space with jitter, of one prompt."""

    def compute(stack, H):
        choice = {"dim": "ambient", "jitter": JITTER, "scale": 1 / N}
        return theorem2(stack, H, shots, 1.0, **choice)

    return compute


def row(L: int, N: int, n: int, prompts: int, compare: int) -> list:
    """Time, memory and value; NumPy on the first ``compare`` prompts."""
    stack, H = problem(L, N, n, prompts)
    batched = jax.jit(jax.vmap(ours(N // 2, N), (None, 0)))
    start = time.perf_counter()
    compiled = batched.lower(stack, H).compile()
    compile_seconds = time.perf_counter() - start
    seconds = _measure.seconds(lambda: compiled(stack, H), repeats=3)
    memory = compiled.memory_analysis()
    mib = None
    if memory is not None:
        mib = (memory.temp_size_in_bytes + memory.argument_size_in_bytes) / 2**20
    values = np.asarray(compiled(stack, H).value)
    name = f"n {n}, N {N}, L {L}, {prompts} prompt" + ("s" if prompts > 1 else "")
    dense_mib = n**4 * 4 / 2**20
    if not compare:
        return [name, seconds, compile_seconds, mib, dense_mib, None, None, None]
    start = time.perf_counter()
    plain = [numpy_bound(stack, H[i], N // 2) for i in range(compare)]
    per_prompt = (time.perf_counter() - start) / compare
    difference = float(np.max(np.abs(values[:compare] / plain - 1)))
    total = per_prompt * prompts
    return [name, seconds, compile_seconds, mib, dense_mib, total, total / seconds] + [
        difference
    ]


def main() -> None:
    jax.config.update("jax_default_matmul_precision", "highest")
    rows = [
        row(4, 64, 1024, 1, 0),
        row(2, 40, 64, 1, 1),
        row(4, 40, 6, 1000, 50),
    ]
    _measure.table(
        f"Theorem 2, ambient with jitter, float32, {jax.devices()[0].device_kind}",
        ["", "ours s", "compile s", "MiB", "C_t MiB", "NumPy s", "x NumPy"]
        + ["difference"],
        rows,
    )


if __name__ == "__main__":
    main()
