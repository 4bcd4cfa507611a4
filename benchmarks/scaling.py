"""Training on several devices: communication, step times, and predictions for more.

Command
    python -m benchmarks.scaling
    python -m benchmarks.scaling --predict 64:0.0036 256:0.0099    # seconds of a step

Measures the sum of a gradient over the devices present and a step on one and on all of
them; a batch split over devices, and members of an ensemble. From the times of a step
on one device at several batches, measured here or given, it says what 8 and 64 GPUs
would do (:mod:`benchmarks._scaling_model`); the network's constants are assumptions. A
CPU is split into four devices that share its cores: that shows the machinery alone.
About a minute.
"""

import argparse
import dataclasses
import functools
import statistics
import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from rich.console import Console
from rich.table import Table

from benchmarks import _alone, _measure
from benchmarks._scaling_model import ASSUMED, Compute, predict
from benchmarks._suite import BenchmarkRow, Budget, Case, Skip, each
from experiments.garg_linear import PRESETS, set_up
from icltheory import training
from icltheory.training import Curriculum, OptimizerConfig, devices

# For the published model in bfloat16, counted in the program that XLA compiles for
# eight H200: two sums per step, of 9.49 million numbers in bfloat16 and 13,058 in
# float32.
GRADIENT_BYTES, EXCHANGES = 18_982_400 + 52_232, 2
HOST_DEVICES = 4


def measure(budget: Budget) -> Iterator[BenchmarkRow]:
    """Measures the sum of a gradient, a split batch, and split members."""
    count, on_gpu = jax.device_count(), jax.default_backend() == "gpu"
    config = _config()
    kind = "" if on_gpu else ", devices that share the cores of one CPU"
    group = f"{count} devices, batch {config.batch_size}{kind}"
    cases = [
        Case("sum of 1 MiB", 3, functools.partial(all_reduce, 2**18)),
        Case("sum of 16 MiB", 3, functools.partial(all_reduce, 2**22)),
        Case("a batch split", 25, functools.partial(split, config, False)),
        Case("members split", 25, functools.partial(split, config, True)),
    ]
    yield from each(group, budget, cases)


def _config():
    on_gpu = jax.default_backend() == "gpu"
    config = PRESETS["gpu" if on_gpu else "cpu"]
    return dataclasses.replace(
        config,
        batch_size=64,
        optimizer=OptimizerConfig("adam", 1e-4),
        curriculum=Curriculum.none(config.dim, config.num_points),
    )


def _several() -> int:
    if jax.device_count() == 1:
        raise Skip("one device")
    return jax.device_count()


def all_reduce(size: int) -> BenchmarkRow:
    """Times the sum of one float32 array per device over all devices."""
    n = _several()
    mesh = devices.device_mesh()
    everywhere = NamedSharding(mesh, PartitionSpec("data"))
    values = jax.device_put(jnp.ones((n, size)), everywhere)

    def total(values):
        return jax.lax.psum(values, "data")

    split_up, whole = PartitionSpec("data"), PartitionSpec()
    program = jax.jit(
        jax.shard_map(total, mesh=mesh, in_specs=split_up, out_specs=whole)
    )
    wrong = float(np.abs(np.asarray(program(values)) - n).max())
    took = _measure.seconds(lambda: program(values))
    # Bytes that each device sends in a ring.
    sent = 2 * (n - 1) / n * 4 * size
    return BenchmarkRow(
        ours_s=took, error=wrong, tolerance=0.0, facts={"GB/s": sent / took / 1e9}
    )


def split(config, members: bool) -> BenchmarkRow:
    """Times a training step on all devices and on one, and compares the losses."""
    n = _several()
    mesh = devices.device_mesh(models=n if members else 1)
    ours, found = step_seconds(config, mesh, n if members else 0)
    one, expected = step_seconds(config, None, n if members else 0)
    return BenchmarkRow(
        ours_s=ours,
        alternative="one device",
        alternative_s=one,
        precision=config.precision,
        error=_measure.disagreement(found, expected),
        tolerance=2e-2 if config.precision == "bfloat16" else 1e-4,
        facts={"efficiency": one / ours / n},
    )


def step_seconds(config, mesh, members: int = 0):
    """Returns the median step time of ``members`` models and their first losses."""
    steps = 100 if jax.default_backend() == "gpu" else 4
    setup = set_up(config, devices=1)
    step = training.make_step(
        setup.model,
        setup.task,
        setup.optimizer,
        config.curriculum,
        batch_size=config.batch_size,
        num_points=config.num_points,
        mesh=mesh,
    )
    seeds = tuple(range(members)) if members else 0
    state = training.init_state(
        setup.model, setup.task, setup.optimizer, seeds, num_points=config.num_points
    )
    place = devices.shard_members if members else devices.replicate
    state = place(state, mesh)
    step = devices.over_members(step, mesh) if members else step
    times, first = [], None
    for chunk in training.run(step, state, 4 * steps, chunk_steps=steps):
        first = np.asarray(chunk.metrics["loss"]) if first is None else first
        times.append(chunk.seconds / steps)
    return statistics.median(times[1:]), first


def measured_times(config) -> dict[int, float]:
    """Measures one device's step times at a batch, a quarter and a sixteenth of it."""
    sizes = [config.batch_size // part for part in (1, 4, 16)]
    changed = [dataclasses.replace(config, batch_size=size) for size in sizes]
    times = [step_seconds(c, None)[0] for c in changed]
    return dict(zip(sizes, times, strict=True))


def show(times: dict[int, float]) -> None:
    """Prints the predictions for 8 and 64 GPUs as a table."""
    compute = Compute.fit(times)
    largest, smallest = max(times), min(times)
    table = Table(
        title=f"On paper, from {compute.fixed * 1e3:.3g} ms + "
        f"{compute.per_prompt * 1e6:.3g} us a prompt on one device; the network is "
        "assumed"
    )
    for name in ("GPUs", "way", "ms/step", "of it talk", "speed-up", "efficiency"):
        table.add_column(name, justify="right")
    for batch in sorted({smallest, largest}):
        for row in predict(compute, ASSUMED, batch, GRADIENT_BYTES, EXCHANGES):
            share = f"{row.exchange / row.step:.1%}"
            cells = (f"{row.step * 1e3:.3g}", share, f"{row.speed:.3g}")
            table.add_row(str(row.devices), row.way, *cells, f"{row.efficiency:.0%}")
    console = Console()
    (console if console.is_terminal else Console(width=120)).print(table)


def _main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--predict", nargs="+", metavar="BATCH:SECONDS")
    flags, rest = parser.parse_known_args()
    if flags.predict:
        pairs = (pair.split(":") for pair in flags.predict)
        show({int(batch): float(seconds) for batch, seconds in pairs})
        return
    # This must precede the first use of the devices.
    jax.config.update("jax_num_cpu_devices", HOST_DEVICES)
    _alone.main(measure, rest)
    if jax.default_backend() == "gpu" and "--rows" not in sys.argv:
        show(measured_times(_config()))


if __name__ == "__main__":
    _main()
