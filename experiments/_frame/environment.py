"""Versions, device and git revision, which a result needs to be reproducible."""

import contextlib
import hashlib
import platform
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import jax

import icltheory
from experiments._frame.cores import cores_usable

_SMALL_LM = Path(__file__).parents[1] / "small_lm" / "checkpoint" / "model.safetensors"


def environment() -> dict[str, Any]:
    """Returns versions, device and revision of this process, for ``config.json``."""
    devices = jax.devices()
    return {
        "icltheory": icltheory.__version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": devices[0].device_kind,
        "num_devices": len(devices),
        "cores": cores_usable(),
        "revision": _revision(),
        "small_lm": small_lm_digest(),
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def small_lm_digest() -> str | None:
    """First digits of the SHA-256 of the shipped language model's weights."""
    if not _SMALL_LM.exists():
        return None
    return hashlib.sha256(_SMALL_LM.read_bytes()).hexdigest()[:12]


def _revision() -> str | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout.strip()
    return None
