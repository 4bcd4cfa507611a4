"""Norms of Theorem 1 by the chosen method and by NumPy, and float32 errors by depth.

Command
    python -m benchmarks.trajectory

Half a minute on two cores.
"""

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _alone, _measure
from benchmarks._suite import BenchmarkRow, Budget, Case, each
from icltheory._names import NormMethod
from icltheory.attention import LinearAttentionStack
from icltheory.trajectory import depth_errors, implicit_gd_norms

GROUP = "Norms of the implicit-GD trajectory"
DEPTH_GROUP = "Float32 trajectory beside the float64 forward pass"
# The key is (L, N, n), the value the time in seconds that measuring takes.
SIZES = {(24, 16, 256): 3, (12, 256, 512): 5, (8, 1000, 64): 4, (8, 16, 2048): 14}
DEPTH_SIZES = ((8, 16, 16), (24, 16, 16), (24, 64, 64))
METHODS: tuple[NormMethod, ...] = ("factors", "dense", "gram")
EVERY_METHOD: tuple[NormMethod, ...] = (*METHODS, "auto")


def measure(budget: Budget) -> Iterator[BenchmarkRow]:
    """Measures norms at every size, then the errors by depth."""
    cases = [Case(name(s), t, functools.partial(row, *s)) for s, t in SIZES.items()]
    yield from each(GROUP, budget, cases)
    cases = [Case(name(s), 3, functools.partial(depth, *s)) for s in DEPTH_SIZES]
    yield from each(DEPTH_GROUP, budget, cases)


def name(size: tuple[int, int, int]) -> str:
    """Describes a problem size in words."""
    return "L {}, N {}, n {}".format(*size)


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


@jax.default_matmul_precision("highest")
def row(L: int, N: int, n: int) -> BenchmarkRow:
    """Times the chosen method and NumPy, and lists the times of all methods."""
    stack, H = problem(L, N, n, jnp.float32)
    host = [np.asarray(a) for a in (stack.W_V, stack.W_K, stack.W_Q, H)]
    paths = {
        method: functools.partial(
            jax.jit(functools.partial(implicit_gd_norms, method=method)), stack, H
        )
        for method in EVERY_METHOD
    }
    facts = {f"{m} ms": 1e3 * _measure.seconds(paths[m], 2) for m in METHODS}
    plain = functools.partial(numpy_norms, *host)
    ours, theirs = _measure.in_turns(paths["auto"], plain, repeats=3)
    got = paths["auto"]()
    # The weights are read once.
    return BenchmarkRow(
        ours_s=ours,
        alternative="NumPy, n x n matrices",
        alternative_s=theirs,
        floor_s=_measure.floor(operations(L, N, n), _measure.nbytes(stack, H)),
        error=_measure.disagreement(got.G, plain()[:, 1]),
        # The tolerance allows for products of n float32 numbers through all layers.
        tolerance=1e-4,
        facts=facts,
    )


@jax.enable_x64(True)
def depth(L: int, N: int, n: int) -> BenchmarkRow:
    """Measures the relative error of the float32 trajectory by depth."""
    stack, H = problem(L, N, n, jnp.float64)
    errors = np.asarray(depth_errors(stack, H, jnp.ones(n)))
    at = (1, L // 4, L // 2, L)
    found = ", ".join(f"{errors[t - 1]:.2g} at {t}" for t in at)
    return BenchmarkRow(
        alternative="float64 forward pass",
        error=float(errors.max()),
        # The tolerance is sixteen roundings of float32, since the update is small
        # compared with the state.
        tolerance=1e-6,
        note=f"by depth {found}",
    )


if __name__ == "__main__":
    _alone.main(measure)
