"""Norms of Theorem 1 by the chosen method and by NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.machine import floor
from benchmarks.suite import EXACT, Pair, case, disagreement, named, nbytes, seconds
from icltheory._typing import NormMethod
from icltheory.attention import LinearAttentionStack
from icltheory.trajectory import implicit_gd_norms

SIZES = ((24, 16, 256), (12, 256, 512), (8, 1000, 64), (8, 16, 2048))
METHODS: tuple[NormMethod, ...] = ("factors", "dense", "gram", "auto")


def problem(L: int, N: int, n: int, dtype, strength: float = 0.1):
    """Draws a random stack whose first update has spectral norm ``strength``."""
    keys = jax.random.split(jax.random.key(0), 5)
    weights = jax.random.normal(keys[0], (3, L, n, n), dtype) / n**0.5
    H = jax.random.normal(keys[1], (N, n), dtype)
    first = weights[0, 0] @ H.T @ (H @ weights[1, 0].T) @ weights[2, 0]
    factor = (strength / jnp.linalg.norm(first, 2)) ** 0.5
    return LinearAttentionStack(*weights), H * factor


def numpy_norms(W_V, W_K, W_Q, H) -> np.ndarray:
    """Computes the norms of Theorem 1 in NumPy with n x n matrices."""
    P = np.eye(H.shape[1], dtype=H.dtype)
    norms = []
    for V, K, Q in zip(W_V, W_K, W_Q, strict=True):
        delta = (V @ H.T) @ (H @ K.T) @ Q
        G = delta @ P
        norms.append((np.linalg.norm(delta), np.linalg.norm(G), np.linalg.norm(P)))
        P = P + G
        H = H + H @ delta.T
    return np.array(norms)


def operations(L: int, N: int, n: int) -> float:
    """Counts the operations of the cheapest method: factors, dense, or Gram matrix."""
    # Moving the tokens: (H U') V. Factors: V, U; C from all earlier ones; L (L + 1) / 2
    # inner products of pairs of N x N. Dense: V, U, V'U, dW W. Gram: six n x n
    # products.
    move = 4 * N**2 * n
    pairs = L * (L + 1) / 2 * 4 * N**2 * n
    factors = L * (6 * N * n**2 + move) + L * (L - 1) / 2 * 4 * N**2 * n + pairs
    dense = L * (8 * N * n**2 + 2 * n**3 + move)
    return min(factors, dense, L * 12 * n**3)


@case("Norms of the implicit-GD trajectory", named("L {}, N {}, n {}", SIZES), EXACT)
def bench_norms(L: int, N: int, n: int) -> Pair:
    stack, H = problem(L, N, n, jnp.float32)
    host = [np.asarray(a) for a in (stack.W_V, stack.W_K, stack.W_Q, H)]
    calls = {
        method: functools.partial(
            jax.jit(functools.partial(implicit_gd_norms, method=method)), stack, H
        )
        for method in METHODS
    }
    return Pair(
        calls["auto"],
        lambda: numpy_norms(*host),
        "NumPy, n x n matrices",
        # The weights are read once.
        floor=floor(operations(L, N, n), nbytes(stack, H)),
        error=lambda got, plain: disagreement(got.G, plain[:, 1]),
        # The tolerance allows for products of n float32 numbers through all layers.
        tolerance=1e-4,
        facts={f"{m} ms": 1e3 * seconds(calls[m], 2) for m in METHODS[:3]},
    )
