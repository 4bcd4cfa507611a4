"""Profiles a call on the device: time by kind of operation, longest first."""

import collections
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax

_NUMBER = re.compile(r"([._]\d+)+$")
_HOLDERS = ("call", "conditional", "while")  # containers of other operations


class Spent(NamedTuple):
    """Number of calls and total time of one kind of operation during a call.

    Attributes:
        name: Of the kernel on a GPU, of XLA's operation elsewhere, without its number.
        calls: How often such ran.
        seconds: All their runs together.
    """

    name: str
    calls: int
    seconds: float


def profile(call: Callable[[], Any]) -> list[Spent]:
    """Profiles one call of a compiled function."""
    with tempfile.TemporaryDirectory(prefix="trace-") as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(call())
        (file,) = Path(folder).rglob("*.xplane.pb")
        data = jax.profiler.ProfileData.from_file(str(file))
        calls, seconds = collections.Counter(), collections.defaultdict(float)
        with warnings.catch_warnings():
            # Reading an event creates a type for which Python 3.13 issues a warning,
            # which would be an error if warnings are errors.
            warnings.simplefilter("ignore", DeprecationWarning)
            for name, took in _operations(data):
                calls[name] += 1
                seconds[name] += took
    longest = sorted(seconds, key=lambda name: -seconds[name])
    return [Spent(name, calls[name], seconds[name]) for name in longest]


def _operations(data: Any) -> Iterator[tuple[str, float]]:
    """Yields the operations that ran: kernels on a GPU, else of compiled programs."""
    devices = [plane for plane in data.planes if plane.name.startswith("/device:GPU")]
    for plane in devices or data.planes:
        for line in plane.lines:
            for event in line.events:
                ran = line.name.startswith("Stream") if devices else _is_leaf(event)
                if ran:
                    yield _NUMBER.sub("", event.name), 1e-9 * event.duration_ns


def _is_leaf(event: Any) -> bool:
    held = event.name.split(".")[0] in _HOLDERS
    return not held and "hlo_op" in dict(event.stats)
