"""The machine: its name, the peak rates that floors are computed from, and its load.

A floor is ``max(operations / peak, bytes / bandwidth)``: what this machine needs at the
speed of one large product in that precision and of one pass over a large array, each
measured once per session. Each case counts its operations and the bytes that it cannot
avoid, its inputs read and its results written once, in a comment.
"""

import contextlib
import importlib.metadata
import os
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.suite import once
from experiments.frame.run import cores_usable, environment

# Measured peak rates by name.
PEAKS: dict[str, float] = {}
MEMORY = "memory GB/s"


def floor(
    flops: float, num_bytes: float = 0.0, *, dtype: str = "float32", exact: bool = True
) -> float:
    """Returns the least seconds that this machine needs for operations and bytes."""
    if MEMORY not in PEAKS:
        PEAKS[MEMORY] = _passes() / 1e9
    reduced = " at reduced precision" * (dtype == "float32" and not exact)
    name = f"{dtype}{reduced} product GFLOP/s"
    if name not in PEAKS:
        PEAKS[name] = _products(dtype, "highest" if exact else None) / 1e9
    return max(flops / PEAKS[name], num_bytes / PEAKS[MEMORY]) / 1e9


def _products(dtype: str, precision: str | None) -> float:
    size = 8192 if jax.default_backend() == "gpu" else 2048
    with jax.enable_x64(dtype == "float64"):
        a, b = jax.random.normal(jax.random.key(0), (2, size, size), dtype)
        product = jax.jit(lambda a, b: jnp.matmul(a, b, precision=precision))
        once(lambda: product(a, b))
        return 2 * size**3 / min(once(lambda: product(a, b))[1] for _ in range(4))


def _passes() -> float:
    # The update is in place, since allocating memory would otherwise dominate the time.
    # On a CPU the array has 1 GiB, which is larger than every cache.
    step = jax.jit(lambda values: values + 1, donate_argnums=0)
    values = jnp.zeros(2**30 if jax.default_backend() == "gpu" else 2**28, jnp.float32)
    size, times = values.nbytes, []
    for _ in range(5):
        values, took = once(lambda values=values: step(values))
        times.append(took)
    return 2 * size / min(times[1:])


def describe(busy: float | None) -> dict[str, Any]:
    """Returns what is stored of this machine, with its load before the run."""
    found, cores, processor = environment(), cores_usable(), cpu_name()
    versions = {name: found[name] for name in ("icltheory", "python", "jax")}
    for name in ("jaxlib", "flax", "optax", "numpy", "scipy", "scikit-learn", "torch"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    gpu = jax.default_backend() == "gpu"
    return {
        "name": found["device"] if gpu else f"{processor}, {cores} cores",
        "processor": processor,
        "cores": cores,
        "device": found["device"],
        "devices": found["num_devices"],
        "versions": versions,
        "revision": found["revision"],
        "peaks": dict(PEAKS),
        "load before": busy,
    }


def load() -> float | None:
    """Returns the mean number of running processes in the last minute."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def cpu_name() -> str:
    lines = []
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1] for line in lines if line.startswith("model name")]
    plain = re.sub(r"\((R|TM)\)|\bProcessor\b|\bCPU\b", " ", names[0] if names else "")
    return " ".join(plain.split()) or "CPU"
