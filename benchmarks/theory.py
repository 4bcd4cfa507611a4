"""Calculators on thousands of prompts compared with NumPy, and their float32 errors.

Command
    python -m benchmarks.theory

First the calculators on 1,000 and 4,000 prompts (64,000 on an accelerator), a batch at
a time in one compiled program; the alternative is a NumPy loop over the prompts, timed
on a part and scaled. Then a line for each calculator of the library: its error in
float32, and what it would be if products were shortened as an accelerator does by
default. Three minutes on two cores; within the suite a few of the lines, in one.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _alone, _measure
from benchmarks._suite import BenchmarkRow, Budget, Case, each
from benchmarks.bounds import numpy_bound, ours
from benchmarks.trajectory import numpy_norms
from icltheory import noise, pruning, trajectory
from icltheory.attention import LinearAttentionStack
from icltheory.batching import batched
from tests import products, theory_cases

L, N, n = 4, 40, 6
BATCH, COMPARE, RANK = 500, 20, 3
GROUP = f"Theory on many prompts, n {n}, N {N}, L {L}"
PRECISION_GROUP = "Error of float32, and of shortened products"
FEW = (
    "implicit_gd_norms, dense",
    "isotropic_bound",
    "update_split",
    "LeastSquares, prefixes",
)
# Tolerance for rounding errors; the two cases below exceed it for the given reasons.
TOLERANCE = 1e-5
COARSE = {
    "noise_spectrum, gram": "rank: float32 keeps fewer eigenvalues, as documented",
}


def measure(budget: Budget) -> Iterator[BenchmarkRow]:
    """Measures the calculators at two sizes, then the precision of all of them."""
    sizes = (1000, 64_000 if jax.default_backend() == "gpu" else 4000)
    cases = [
        Case(f"{name}, {size:,} prompts", 3, functools.partial(row, name, size))
        for size in sizes
        for name in calculators(jnp.float32)
    ]
    doubled = functools.partial(row, "Theorem 2", sizes[0], "float64")
    cases.append(Case(f"Theorem 2, {sizes[0]:,} prompts", 3, doubled))
    yield from each(GROUP, budget, cases)
    every = theory_cases.cases()
    chosen = every if math.isinf(budget.seconds) else FEW
    cases = [
        Case(name, 4, functools.partial(precision, name, every[name]))
        for name in chosen
    ]
    yield from each(PRECISION_GROUP, budget, cases)


def problem(prompts: int, dtype: Any) -> tuple[LinearAttentionStack, jax.Array]:
    """Draws a stack whose updates are small, and prompts for it."""
    weights, H = theory_cases.stack_and_tokens(L, N, n, prompts)
    W_V, W_K, W_Q = (jnp.asarray(W, dtype) for W in weights)
    return LinearAttentionStack(0.1 * W_V, W_K, W_Q), jnp.asarray(H, dtype)


def calculators(dtype: Any) -> dict[str, tuple[Callable, Callable, float]]:
    """Returns each calculator, its NumPy version for one prompt, and the tolerance."""

    def norms(stack, H):
        return trajectory.implicit_gd_norms(stack, H, scale=1 / N).G

    def spectrum(stack, H):
        return noise.noise_spectrum(stack, H, N // 2, scale=1 / N).eigenvalues[:, :5]

    def table(stack, H):
        found = pruning.depth_table(stack, H, "W_V", rank=RANK, scale=1 / N)
        return jnp.concatenate([found.G, found.G_unpruned[None]])

    def bound(stack, H):
        return ours(N // 2, N)(stack, H).value

    low = 1e-4 if dtype == jnp.float32 else 1e-9
    return {
        "Norms": (norms, plain_norms, low),
        "Noise spectrum": (spectrum, plain_spectrum, low),
        "Theorem 2": (bound, lambda stack, H: numpy_bound(stack, H, N // 2), low),
        "Remark 5's table": (table, plain_table, low),
    }


def plain_norms(stack, H, W_V=None) -> np.ndarray:
    """Computes the norms of G_t with n x n matrices in NumPy."""
    W_V = stack.W_V if W_V is None else W_V
    host = [np.asarray(a) for a in (W_V, stack.W_K, stack.W_Q, H)]
    return numpy_norms(host[0] / N, *host[1:])[:, 1]


def plain_spectrum(stack, H) -> np.ndarray:
    """Computes the five largest eigenvalues of each C_t from the dense matrix."""
    W_V, W_K, W_Q, H = (np.asarray(a) for a in (stack.W_V, stack.W_K, stack.W_Q, H))
    P, values = np.eye(n, dtype=H.dtype), []
    for V, K, Q in zip(W_V, W_K, W_Q, strict=True):
        z = np.stack([(np.outer(V @ h, K @ h) @ Q @ P).ravel() for h in H])  # N / N = 1
        G = z.mean(axis=0)
        C = (z - G).T @ (z - G) / N * (N - N // 2) / (N // 2 * (N - 1))
        values.append(np.linalg.eigvalsh(C)[::-1][:5])
        G = G.reshape(n, n)
        H, P = H + H @ (G @ np.linalg.inv(P)).T, P + G
    return np.array(values)


def plain_table(stack, H) -> np.ndarray:
    """Computes the norms with each layer's value matrix truncated in turn."""
    rows, W_V = [], np.asarray(stack.W_V)
    for k in range(L):
        U, s, Vt = np.linalg.svd(W_V[k])
        cut = W_V.copy()
        cut[k] = (U[:, :RANK] * s[:RANK]) @ Vt[:RANK]
        rows.append(plain_norms(stack, H, cut))
    return np.array([*rows, plain_norms(stack, H)])


def row(name: str, prompts: int, dtype: str = "float32") -> BenchmarkRow:
    """Times one calculator on all prompts, and NumPy on some of them."""
    with jax.enable_x64(dtype == "float64"):
        function, plain, tolerance = calculators(jnp.dtype(dtype))[name]
        stack, H = problem(prompts, dtype)
        program = batched(function, BATCH, in_axes=(None, 0))
        _, compiling = _measure.once(lambda: program(stack, H))
        seconds = _measure.seconds(lambda: program(stack, H), repeats=3)
        # On the host, since NumPy does not wait for copies from a device.
        host, some = jax.device_get((stack, H[:COMPARE]))
        items = [(host, one) for one in some]
        expected, theirs = _measure.part_of_loop(plain, items, prompts)
        got = program(stack, H)[:COMPARE]
        mapped = jax.vmap(function, (None, 0))
        _, facts = _measure.compiled(mapped, stack, H[:BATCH])
        return BenchmarkRow(
            name=f"{name}, {prompts:,} prompts",
            ours_s=seconds,
            alternative="NumPy, a prompt at a time",
            alternative_s=theirs,
            precision=dtype,
            error=_measure.disagreement(got, np.array(expected)),
            tolerance=tolerance,
            facts={
                "prompts/s": prompts / seconds,
                "first call s": compiling,
                f"{BATCH} prompts MiB": facts.get("MiB", float("nan")),
            },
            note=f"alternative timed on {COMPARE} prompts, scaled",
        )


def precision(name: str, case: theory_cases.TheoryCase) -> BenchmarkRow:
    """Measures errors against float64, as written and at the default precision.

    On an accelerator those are the device's own; elsewhere their operands are rounded.
    """
    with jax.enable_x64(True):
        exact = _cast(jax.jit(case.function)(*_cast(case.arrays, jnp.float64)))
    with jax.enable_x64(False):
        arrays = _cast(case.arrays, jnp.float32)
        shortened = {
            "TF32": functools.partial(products.rounded, bits=products.TF32),
            "bfloat16": functools.partial(products.rounded, bits=products.BF16),
        }
        asked = jax.jit(case.function)
        if jax.default_backend() == "cpu":
            asked = jax.jit(shortened["TF32"](case.function))
        else:
            shortened["this device"] = products.loosened
        facts = {
            f"products in {kind}:": error(
                jax.jit(change(case.function, **_all(kind)))(*arrays), exact
            )
            for kind, change in shortened.items()
        }
        found = error(asked(*arrays), exact)
    why = COARSE.get(name, "")
    tolerance = None if why else TOLERANCE
    return BenchmarkRow(error=found, tolerance=tolerance, facts=facts, note=why)


def _all(kind):
    return {} if kind == "this device" else {"all_of_them": True}


def error(got: Any, exact: Any) -> float:
    """Returns the largest error of all outputs, each relative to its largest entry."""
    worst = 0.0
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(exact), strict=True):
        a, b = (np.asarray(x, np.float64) for x in (a, b))
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return float("inf")
        known = np.isfinite(b)
        worst = max(worst, _measure.disagreement(a[known], b[known]))
    return worst


def _cast(tree: Any, dtype: Any = None) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), tree)


if __name__ == "__main__":
    _alone.main(measure)
