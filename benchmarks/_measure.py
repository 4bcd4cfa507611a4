"""Timing that waits for the device, and the machine's own ceiling."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def seconds(function: Callable[[], Any], repeats: int = 5) -> float:
    """Median wall time of a call, its result waited for, after one call to warm up."""
    jax.block_until_ready(function())
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def peak_flops(dtype, precision: str | None) -> float:
    """Floating-point operations a second of one large square product."""
    size = 8192 if jax.default_backend() == "gpu" else 2048
    a, b = jax.random.normal(jax.random.key(0), (2, size, size), dtype)
    product = jax.jit(lambda a, b: jnp.matmul(a, b, precision=precision))
    return 2 * size**3 / seconds(lambda: product(a, b))


def gpt2_train_flops(
    *, batch_size: int, num_points: int, dim: int, width: int, num_layers: int
) -> float:
    """Floating-point operations of one training step of GPT-2 on interleaved tokens.

    A token costs 24 width^2 a layer in dense products and 4 T width in attention, and
    the read-in; the backward pass costs twice the forward pass.
    """
    tokens = 2 * num_points
    a_token = num_layers * (24 * width**2 + 4 * tokens * width) + 2 * dim * width
    return 3.0 * batch_size * tokens * a_token


def table(title: str, header: list[str], rows: list[list[Any]]) -> None:
    """Prints a table whose columns line up."""
    cells = [header, *[[_text(cell) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    print(f"\n{title}")
    for index, row in enumerate(cells):
        first = row[0].ljust(widths[0])
        rest = [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
        print("  ".join([first, *rest]))
        if index == 0:
            print("  ".join("-" * w for w in widths))


def _text(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:.3g}" if abs(cell) < 1000 else f"{cell:,.0f}"
    return "-" if cell is None else str(cell)
