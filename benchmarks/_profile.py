"""Where the time of a call goes on the device: kinds of operations, longest first."""

import collections
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax

_NUMBER = re.compile(r"([._]\d+)+$")
_HOLDERS = ("call", "conditional", "while")  # their time is that of what they hold


class Spent(NamedTuple):
    """What the operations of one kind took over a whole call.

    Attributes:
        name: Of the kernel on a GPU, of XLA's operation elsewhere, without its number.
        calls: How often such ran.
        seconds: All their runs together.
    """

    name: str
    calls: int
    seconds: float


def profile(call: Callable[[], Any]) -> list[Spent]:
    """Traces one call, which should be compiled already, and waits for its result."""
    with tempfile.TemporaryDirectory(prefix="trace-") as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(call())
        (file,) = Path(folder).rglob("*.xplane.pb")
        data = jax.profiler.ProfileData.from_file(str(file))
        calls, seconds = collections.Counter(), collections.defaultdict(float)
        with warnings.catch_warnings():
            # Reading an event makes a type that Python 3.13 warns of, and dies of if
            # warnings are errors.
            warnings.simplefilter("ignore", DeprecationWarning)
            for name, took in _operations(data):
                calls[name] += 1
                seconds[name] += took
    longest = sorted(seconds, key=lambda name: -seconds[name])
    return [Spent(name, calls[name], seconds[name]) for name in longest]


def _operations(data: Any) -> Iterator[tuple[str, float]]:
    """Kernels on the streams of a GPU, else what the host ran of compiled programs."""
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
