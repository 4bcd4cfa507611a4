"""Timing of device programs, peak rates of the machine, and differences of results.

A floor is ``max(operations / peak, bytes / bandwidth)``: what this machine needs at the
speed of one large product in that precision and of one pass over a large array. Both
are measured once in a run, when first asked for or by the suite before it begins. Each
benchmark counts its operations and the bytes it cannot avoid, its inputs read and its
results written once, in a comment.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Peak rates measured by the suite, by name.
KNOWN: dict[str, float] = {}
MEMORY = "memory GB/s"


def product_name(dtype: str, precision: str | None) -> str:
    """Returns the name of a peak rate of matrix products by dtype and precision."""
    reduced = dtype == "float32" and precision != "highest"
    return f"{dtype}{' at reduced precision' * reduced} product GFLOP/s"


def seconds(
    function: Callable[[], Any], repeats: int = 5, limit: float = 10.0
) -> float:
    """Returns the median wall time of a call after one warm-up call."""
    return in_turns(function, repeats=repeats, limit=limit)[0]


def in_turns(
    *functions: Callable[[], Any], repeats: int = 5, limit: float = 10.0
) -> list[float]:
    """Returns the median wall times of several functions, called in alternation.

    After ``limit`` seconds no further turn begins, so that on a busy machine a few
    calls have to do.
    """
    times: list[list[float]] = [[] for _ in functions]
    begun = time.perf_counter()
    for function in functions:
        jax.block_until_ready(function())
    for turn in range(repeats):
        if turn and time.perf_counter() - begun > limit:
            break
        for function, kept in zip(functions, times, strict=True):
            kept.append(once(function)[1])
    return [float(np.median(kept)) for kept in times]


def once(function: Callable[[], Any]) -> tuple[Any, float]:
    """Returns a call's result and its wall time in seconds, without a warm-up call."""
    start = time.perf_counter()
    result = jax.block_until_ready(function())
    return result, time.perf_counter() - start


def disagreement(ours: Any, alternative: Any) -> float:
    """Returns the largest difference of two results, relative to the largest value."""
    a, b = (np.asarray(x, np.float64) for x in (ours, alternative))
    if a.shape != b.shape:
        raise ValueError(f"ours: expected shape {b.shape}, got {a.shape}")
    scale = np.abs(b).max(initial=0.0)
    return float(np.abs(a - b).max(initial=0.0) / (scale if scale > 0 else 1.0))


def peak_flops(dtype: str = "float32", precision: str | None = "highest") -> float:
    """Returns the peak rate of a large square product in operations per second."""
    name = product_name(dtype, precision)
    if name not in KNOWN:
        KNOWN[name] = _products(dtype, precision) / 1e9
    return 1e9 * KNOWN[name]


def bandwidth() -> float:
    """Returns the peak memory bandwidth in bytes per second, read and written."""
    if MEMORY not in KNOWN:
        KNOWN[MEMORY] = _passes() / 1e9
    return 1e9 * KNOWN[MEMORY]


def peaks() -> dict[str, float]:
    """Measures the peak rates that the hardware limits are computed from."""
    for dtype in ("float32", "float64", "bfloat16"):
        peak_flops(dtype)
    bandwidth()
    return dict(KNOWN)


def _products(dtype: str, precision: str | None) -> float:
    size = 8192 if jax.default_backend() == "gpu" else 2048
    with jax.enable_x64(dtype == "float64"):
        a, b = jax.random.normal(jax.random.key(0), (2, size, size), dtype)
        product = jax.jit(lambda a, b: jnp.matmul(a, b, precision=precision))
        return 2 * size**3 / _best(lambda: product(a, b), 4)


def _passes() -> float:
    # The update is in place, since allocating memory would otherwise dominate the time.
    # On a CPU the array has 1 GiB, which is larger than every cache.
    step = jax.jit(lambda values: values + 1, donate_argnums=0)
    values = jnp.zeros(2**30 if jax.default_backend() == "gpu" else 2**28, jnp.float32)
    size, times = values.nbytes, []
    for _ in range(5):
        values, took = once(functools.partial(step, values))
        times.append(took)
    return 2 * size / min(times[1:])


def _best(function: Callable[[], Any], repeats: int) -> float:
    jax.block_until_ready(function())
    return min(once(function)[1] for _ in range(repeats))


def floor(
    flops: float,
    num_bytes: float = 0.0,
    *,
    dtype: str = "float32",
    precision: str | None = "highest",
) -> float:
    """Returns the least time that the machine needs for these operations and bytes."""
    by_operations = flops / peak_flops(dtype, precision)
    return max(by_operations, num_bytes / bandwidth() if num_bytes else 0.0)


def nbytes(*trees: Any) -> int:
    """Returns the size of all arrays in bytes."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(trees))


def compiled(function: Callable[..., Any], *args: Any) -> tuple[Any, dict[str, float]]:
    """Compiles a function and returns it with its compile time and memory."""
    lowered = jax.jit(function).lower(*args)
    program, took = once(lowered.compile)
    facts = {"compile s": took}
    memory = program.memory_analysis()
    if memory is not None:
        used = memory.temp_size_in_bytes + memory.argument_size_in_bytes
        facts["MiB"] = used / 2**20
    return program, facts


def part_of_loop(
    rule: Callable[..., Any], items: Sequence[Any], total: int
) -> tuple[list[Any], float]:
    """Runs a Python loop on some items and scales its time up to all of them."""
    start = time.perf_counter()
    answers = [rule(*item) for item in items]
    return answers, (time.perf_counter() - start) * total / len(items)


def gpt2_train_flops(
    *, batch_size: int, num_points: int, dim: int, width: int, num_layers: int
) -> float:
    """Counts the floating-point operations of one GPT-2 training step.

    A token costs 24 width^2 a layer in dense products and 4 T width in attention, and
    the read-in; the backward pass costs twice the forward pass.
    """
    tokens = 2 * num_points
    a_token = num_layers * (24 * width**2 + 4 * tokens * width) + 2 * dim * width
    return 3.0 * batch_size * tokens * a_token
