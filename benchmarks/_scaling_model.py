"""Predicts the time of a training step on many devices from a simple model.

Each of n = hosts x g devices takes batch / n prompts; then the gradient is summed,
first within a host and then, in g equal shares, between the hosts:

    t(n) = c_0 + c_1 batch / n + exchanges * latency
           + 2 (g - 1) / g * bytes / bandwidth                         within a host
           + 2 (hosts - 1) / hosts * bytes / g / bandwidth_between     if hosts > 1

c_0 and c_1 are fitted to steps on one device. Nothing overlaps, so it errs upwards.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np


@dataclasses.dataclass(frozen=True)
class Network:
    """Bandwidth and latency of the network between devices, measured or assumed.

    Attributes:
        bandwidth: Bytes a second that a device sends within its host.
        latency: Seconds of an exchange within a host.
        bandwidth_between: Bytes a second that a device sends to other hosts.
        latency_between: Seconds that an exchange takes more between hosts.
        devices: Devices of a host.
    """

    bandwidth: float
    latency: float
    bandwidth_between: float
    latency_between: float
    devices: int = 8

    def seconds(self, num_devices: int, num_bytes: float, exchanges: int) -> float:
        """Returns the time in seconds to sum ``num_bytes`` over the devices."""
        if num_devices == 1:
            return 0.0
        g = min(num_devices, self.devices)
        hosts = -(-num_devices // g)
        total = exchanges * self.latency + _ring(g) * num_bytes / self.bandwidth
        if hosts > 1:
            total += exchanges * self.latency_between
            total += _ring(hosts) * num_bytes / g / self.bandwidth_between
        return total


# These numbers are not measured. NVLink 4 has 900 GB/s in both directions together
# (NVIDIA's H200 data sheet), so 450 in each; NDR InfiniBand has 400 Gbit/s per GPU
# (NVIDIA's DGX H200 data sheet). Both latencies, and that a large sum reaches four
# fifths of either rate, are guesses.
ASSUMED = Network(0.8 * 450e9, 20e-6, 0.8 * 50e9, 30e-6)


def _ring(n: int) -> float:
    return 2 * (n - 1) / n


@dataclasses.dataclass(frozen=True)
class Compute:
    """Time of a training step on one device: ``fixed + per_prompt * batch`` seconds."""

    fixed: float
    per_prompt: float

    @classmethod
    def fit(cls, seconds: Mapping[int, float]) -> "Compute":
        """Fits the model to at least two step times by relative least squares."""
        if len(seconds) < 2:
            raise ValueError(f"seconds: expected two batches or more, got {seconds}")
        batches = np.array(list(seconds), float)
        times = np.array(list(seconds.values()), float)
        rows = np.stack([1 / times, batches / times], axis=1)
        fixed, each = np.linalg.lstsq(rows, np.ones_like(times))[0]
        return cls(max(float(fixed), 0.0), max(float(each), 0.0))

    def seconds(self, batch: float) -> float:
        """Returns the time of a step in seconds."""
        return self.fixed + self.per_prompt * batch


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Predicted step time and speed of one way to use several devices.

    Attributes:
        devices: How many.
        way: What is split.
        step: Seconds of a step.
        exchange: Those of them that are communication.
        speed: Model-steps (ensemble) or prompts (data) a second over one device's.
    """

    devices: int
    way: str
    step: float
    exchange: float
    speed: float

    @property
    def efficiency(self) -> float:
        """Speed-up divided by the number of devices."""
        return self.speed / self.devices


def predict(
    compute: Compute,
    network: Network,
    batch: int,
    num_bytes: float,
    exchanges: int,
    counts: tuple[int, ...] = (8, 64),
) -> list[Prediction]:
    """Predicts step times of a split batch, a batch per device, a member per device."""
    one, found = compute.seconds(batch), []
    for n in counts:
        talk = network.seconds(n, num_bytes, exchanges)
        if batch % n == 0:
            step = compute.seconds(batch / n) + talk
            found.append(Prediction(n, f"batch {batch} split", step, talk, one / step))
        step = one + talk
        found.append(
            Prediction(n, f"batch {batch} on each", step, talk, n * one / step)
        )
        found.append(Prediction(n, "a member on each", one, 0.0, float(n)))
    return found
