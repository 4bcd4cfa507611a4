"""Versions, device and git revision, which a result needs to be reproducible."""

import contextlib
import platform
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import jax

import icltheory
from experiments._frame.cores import cores_usable


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
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


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
