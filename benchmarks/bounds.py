"""Theorem 2 without n^2 x n^2 matrices, compared with its dense evaluation in NumPy.

Command
    python -m benchmarks.bounds

Half a minute on two cores. Every field of the result is computed and waited for.
"""

import functools
from collections.abc import Iterator

import jax
import numpy as np

from benchmarks import _alone, _measure
from benchmarks._suite import BenchmarkRow, Budget, Case, each
from icltheory.attention import LinearAttentionStack
from icltheory.bounds import isotropic_bound, noisy_steps

JITTER = 1e-4
GROUP = "Theorem 2 in the ambient space with jitter"
# The key is (L, N, n, prompts, prompts evaluated in NumPy), the value the time in
# seconds.
SIZES = {(4, 40, 6, 1000, 50): 4, (2, 40, 64, 1, 1): 12, (4, 64, 1024, 1, 0): 10}


def measure(budget: Budget) -> Iterator[BenchmarkRow]:
    """Measures many small prompts, a medium one, and one too large for NumPy."""
    cases = [Case(name(*s), t, functools.partial(row, *s)) for s, t in SIZES.items()]
    yield from each(GROUP, budget, cases)


def name(L: int, N: int, n: int, prompts: int, _: int) -> str:
    """Describes a problem size in words."""
    many = f", {prompts:,} prompts" if prompts > 1 else ""
    return f"n {n}, N {N}, L {L}{many}"


def problem(L: int, N: int, n: int, prompts: int = 1):
    """Draws a random stack whose first update is small, and prompts for it."""
    keys = jax.random.split(jax.random.key(0), 4)
    W_V, W_K, W_Q = jax.random.normal(keys[0], (3, L, n, n)) / n**0.5
    H = jax.random.normal(keys[1], (prompts, N, n))
    return LinearAttentionStack(0.02 * W_V, W_K, W_Q), H


def numpy_bound(stack, H, shots: int) -> float:
    """Evaluates Theorem 2 in NumPy with C_t as a dense matrix and jitter."""
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
    """Returns a function for one prompt's bound, with dim="ambient" and jitter."""

    def compute(stack, H):
        steps = noisy_steps(stack, H, shots, scale=1 / N)
        return isotropic_bound(steps.ambient().jittered(JITTER), 1.0)

    return compute


def operations(L: int, N: int, n: int) -> float:
    """Counts the floating-point operations for one prompt."""
    # Products of tokens with W_V, W_K, W_Q and 1 + W, and V'C: 10 N n^2. Three Gram
    # matrices of the factors: 6 N^2 n. Their eigenvalues: 4/3 N^3.
    return L * (10 * N * n**2 + 6 * N**2 * n + 4 / 3 * N**3)


@jax.default_matmul_precision("highest")
def row(L: int, N: int, n: int, prompts: int, compare: int) -> BenchmarkRow:
    """Measures time, memory and value, with NumPy on the first ``compare`` prompts."""
    stack, H = problem(L, N, n, prompts)
    batched = jax.vmap(ours(N // 2, N), (None, 0))
    program, facts = _measure.compiled(batched, stack, H)
    flops, moved = prompts * operations(L, N, n), _measure.nbytes(stack, H)
    found = {
        "ours_s": _measure.seconds(lambda: program(stack, H), repeats=3),
        "floor_s": _measure.floor(flops, moved),
        "facts": {**facts, "one C_t alone MiB": n**4 * 4 / 2**20},
    }
    if not compare:
        return BenchmarkRow(**found, note="C_t as a matrix does not fit")
    # On the host, since NumPy does not wait for copies from a device.
    host, prompts_there = jax.device_get((stack, H[:compare]))
    items = [(host, each, N // 2) for each in prompts_there]
    plain, seconds = _measure.part_of_loop(numpy_bound, items, prompts)
    part = f"alternative timed on {compare} prompts, scaled" * (compare < prompts)
    return BenchmarkRow(
        **found,
        alternative="NumPy, C_t as a matrix",
        alternative_s=seconds,
        error=_measure.disagreement(program(stack, H).value[:compare], plain),
        # The tolerance allows for float32 eigenvalues under a logarithm, shifted by the
        # jitter.
        tolerance=1e-4,
        note=part,
    )


if __name__ == "__main__":
    _alone.main(measure)
