"""Theorem 1's norms by three paths and by NumPy, and float32's error by depth.

Command
    python -m benchmarks.trajectory

About a minute on two cores.
"""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _measure
from icltheory.attention import LinearAttentionStack
from icltheory.trajectory import depth_errors, implicit_gd_norms

SIZES = ((8, 16, 2048), (12, 256, 512), (8, 1000, 64), (24, 16, 256))


def problem(L: int, N: int, n: int, dtype, strength: float = 0.1):
    """A random stack whose first update has spectral norm ``strength``."""
    keys = jax.random.split(jax.random.key(0), 5)
    weights = jax.random.normal(keys[0], (3, L, n, n), dtype) / n**0.5
    H = jax.random.normal(keys[1], (N, n), dtype)
    first = weights[0, 0] @ H.T @ (H @ weights[1, 0].T) @ weights[2, 0]
    factor = (strength / jnp.linalg.norm(first, 2)) ** 0.5
    return LinearAttentionStack(*weights), H * factor


def numpy_norms(W_V, W_K, W_Q, H) -> np.ndarray:
    """What a reader of the paper would write: the theorem with n x n matrices."""
    P = np.eye(H.shape[1], dtype=H.dtype)
    norms = []
    for V, K, Q in zip(W_V, W_K, W_Q, strict=True):
        delta = (V @ H.T) @ (H @ K.T) @ Q
        G = delta @ P
        norms.append((np.linalg.norm(delta), np.linalg.norm(G), np.linalg.norm(P)))
        P = P + G
        H = H + H @ delta.T
    return np.array(norms)


def main() -> None:
    jax.config.update("jax_default_matmul_precision", "highest")
    rows = []
    for L, N, n in SIZES:
        stack, H = problem(L, N, n, jnp.float32)
        timed = {}
        for method in ("factors", "dense", "gram", "auto"):
            compute = jax.jit(lambda s, h, m=method: implicit_gd_norms(s, h, method=m))
            timed[method] = _measure.seconds(functools.partial(compute, stack, H))
        host = [np.asarray(a) for a in (stack.W_V, stack.W_K, stack.W_Q, H)]
        start = time.perf_counter()
        expected = numpy_norms(*host)
        plain = time.perf_counter() - start
        got = implicit_gd_norms(stack, H)
        error = np.max(np.abs(np.asarray(got.G) / expected[:, 1] - 1))
        rows.append(
            [f"L {L}, N {N}, n {n}"]
            + [1e3 * timed[m] for m in ("factors", "dense", "gram", "auto")]
            + [1e3 * plain, plain / timed["auto"], float(error)]
        )
    _measure.table(
        f"norms of the implicit-GD trajectory, float32, {jax.devices()[0].device_kind}",
        ["", "factors ms", "dense ms", "gram ms", "auto ms", "NumPy ms", "x NumPy"]
        + ["difference"],
        rows,
    )

    jax.config.update("jax_enable_x64", True)
    rows = []
    for L, N, n in ((8, 16, 16), (24, 16, 16), (24, 64, 64)):
        stack, H = problem(L, N, n, jnp.float64)
        errors = depth_errors(stack, H, jnp.ones(n))
        at = (1, L // 4, L // 2, L)
        rows.append([f"L {L}, N {N}, n {n}", *(float(errors[t - 1]) for t in at)])
    _measure.table(
        "float32 trajectory against the float64 forward pass, relative error at depth",
        ["", "1", "L/4", "L/2", "L"],
        rows,
    )


if __name__ == "__main__":
    main()
