"""Theorem 2 without n^2 x n^2 matrices, and its dense evaluation in NumPy.

Every field of the result is computed and waited for.
"""

import jax
import numpy as np

from benchmarks.machine import floor
from benchmarks.suite import EXACT, Pair, case, compiled, disagreement, nbytes
from icltheory.attention import LinearAttentionStack
from icltheory.bounds import isotropic_bound, noisy_steps

JITTER = 1e-4
# L, N, n, prompts, prompts evaluated in NumPy. The last is too large for NumPy.
SIZES = {
    "n 6, N 40, L 4, 1,000 prompts": (4, 40, 6, 1000, 50),
    "n 64, N 40, L 2": (2, 40, 64, 1, 1),
    "n 1024, N 64, L 4": (4, 64, 1024, 1, 0),
}


def numpy_layers(stack, H, shots: int):
    """Yields G_t as a vector and C_t as a dense matrix for each layer, in NumPy."""
    W_V, W_K, W_Q, H = (np.asarray(a) for a in (stack.W_V, stack.W_K, stack.W_Q, H))
    N, n = H.shape
    P = np.eye(n, dtype=H.dtype)
    for V, K, Q in zip(W_V, W_K, W_Q, strict=True):
        z = np.stack([(np.outer(V @ h, K @ h) @ Q @ P).ravel() for h in H])  # N/N = 1
        G = z.mean(axis=0)
        yield G, (z - G).T @ (z - G) / N * (N - shots) / (shots * (N - 1))
        G = G.reshape(n, n)
        H, P = H + H @ (G @ np.linalg.inv(P)).T, P + G


def numpy_bound(stack, H, shots: int) -> float:
    """Evaluates Theorem 2 in NumPy with C_t as a dense matrix and jitter."""
    N, n = H.shape
    d, total = n * n, 0.0
    for G, C in numpy_layers(stack, H, shots):
        A_1, values = G @ G + np.trace(C) + d * JITTER, np.linalg.eigvalsh(C)
        total += d * np.log(A_1 / d) - np.sum(np.log(np.maximum(values, 0) + JITTER))
    return float(np.sqrt(total / N))


def bound_of(shots: int, N: int):
    """Returns a function for one prompt's bound, in the ambient space with jitter."""

    def compute(stack, H):
        steps = noisy_steps(stack, H, shots, scale=1 / N)
        return isotropic_bound(steps.ambient().jittered(JITTER), 1.0)

    return compute


def operations(L: int, N: int, n: int) -> float:
    """Counts the floating-point operations for one prompt."""
    # Products of tokens with W_V, W_K, W_Q and 1 + W, and V'C: 10 N n^2. Three Gram
    # matrices of the factors: 6 N^2 n. Their eigenvalues: 4/3 N^3.
    return L * (10 * N * n**2 + 6 * N**2 * n + 4 / 3 * N**3)


@case("Theorem 2 in the ambient space with jitter", SIZES, EXACT)
def bench_bound(L: int, N: int, n: int, prompts: int, count: int) -> Pair:
    keys = jax.random.split(jax.random.key(0), 4)
    W_V, W_K, W_Q = jax.random.normal(keys[0], (3, L, n, n)) / n**0.5
    # The first update is small.
    stack = LinearAttentionStack(0.02 * W_V, W_K, W_Q)
    H = jax.random.normal(keys[1], (prompts, N, n))
    program, facts = compiled(jax.vmap(bound_of(N // 2, N), (None, 0)), stack, H)
    # On the host, since NumPy does not wait for copies from a device.
    host, some = jax.device_get((stack, H[:count]))
    plain = lambda: [numpy_bound(host, one, N // 2) for one in some]  # noqa: E731
    return Pair(
        lambda: program(stack, H),
        plain if count else None,
        "NumPy, C_t as a matrix",
        (count or prompts, prompts, "prompts"),
        floor=floor(prompts * operations(L, N, n), nbytes(stack, H)),
        error=lambda got, found: disagreement(got.value[:count], found),
        # The tolerance allows for float32 eigenvalues under a logarithm, shifted by the
        # jitter.
        tolerance=1e-4,
        note="" if count else "C_t as a matrix does not fit",
        facts={**facts, "one C_t alone MiB": n**4 * 4 / 2**20},
    )
