"""Describes the machine: hardware, peak rates, software versions and load.

Asked in a process of its own, ``python -m benchmarks._machine FILE``, because whoever
asks for the device keeps an accelerator's memory.
"""

import importlib.metadata
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import jax

from benchmarks import _measure
from experiments.frame.exits import require_platform
from experiments.frame.run import cores_usable, environment

_PACKAGES = ("jaxlib", "flax", "optax", "numpy", "scipy", "scikit-learn", "torch")


def describe() -> dict[str, Any]:
    """Returns name, processor, cores, memory, device, versions and peak rates."""
    busy = load()
    found = environment()
    cores = cores_usable()
    processor = cpu_name()
    gpu = jax.default_backend() == "gpu"
    return {
        "machine": {
            "name": found["device"] if gpu else f"{processor}, {cores} cores",
            "processor": processor,
            "cores": cores,
            "memory GiB": _memory_gib(),
            "device": found["device"],
            "devices": found["num_devices"],
            "backend": jax.default_backend(),
        },
        "versions": {
            **{name: found[name] for name in ("icltheory", "python", "jax")},
            **{name: v for name in _PACKAGES if (v := _version(name))},
        },
        "revision": found["revision"],
        "started": found["started"],
        "peaks": _measure.peaks(),
        "load before": busy,
    }


def load() -> list[float] | None:
    """Returns the mean number of running processes over 1, 5 and 15 minutes."""
    return list(os.getloadavg()) if hasattr(os, "getloadavg") else None


def slug(name: str) -> str:
    """Returns a machine's name in a form that is valid in a file name."""
    kept = re.sub(r"\((r|tm)\)|\bprocessor\b|\bcpu\b", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", kept).strip("-")


def cpu_name() -> str:
    """Returns the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1] for line in lines if line.startswith("model name")]
    plain = re.sub(r"\((R|TM)\)|\bProcessor\b|\bCPU\b", " ", names[0] if names else "")
    return " ".join(plain.split()) or "CPU"


def _memory_gib() -> float | None:
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
    return round(pages * size / 2**30, 1)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    require_platform()
    Path(sys.argv[1]).write_text(json.dumps(describe()))
