"""Training on several devices: sums over devices, a split batch, split members.

It needs several devices. ``JAX_NUM_CPU_DEVICES=4 pytest benchmarks/cases/scaling.py``
splits a CPU into four that share its cores: that shows the machinery alone.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks.garg import initial_state, published, set_up
from benchmarks.suite import Pair, case, disagreement, named, on_gpu
from icltheory import training
from icltheory.training import devices


def _several() -> int:
    if jax.device_count() == 1:
        pytest.skip("one device")
    return jax.device_count()


@case("Sum of one float32 array per device", named("{} MiB", ((1,), (16,))))
def bench_sum(size: int) -> Pair:
    n, axis = _several(), PartitionSpec("data")
    mesh = devices.device_mesh()
    values = jnp.ones((n, size * 2**18))
    values = jax.device_put(values, NamedSharding(mesh, axis))

    specs = {"in_specs": axis, "out_specs": PartitionSpec()}
    total = functools.partial(jax.lax.psum, axis_name="data")
    program = jax.jit(jax.shard_map(total, mesh=mesh, **specs))
    return Pair(
        lambda: program(values),
        error=float(np.abs(np.asarray(program(values)) - n).max()),
        tolerance=0.0,
        # Bytes that each device sends in a ring.
        rates={"GB/s": 2 * (n - 1) / n * size * 2**20 / 1e9},
    )


@case(
    "Training step on all devices, batch 64",
    {"a batch split": (False,), "members split": (True,)},
)
def bench_split(members: bool) -> Pair:
    n, steps = _several(), 100 if on_gpu() else 4
    seeds = tuple(range(n)) if members else (0,)
    config = published("gpu" if on_gpu() else "cpu", seeds=seeds)
    mesh = devices.device_mesh(models=n if members else 1)
    ours, alone = _running(config, mesh, steps), _running(config, None, steps)
    first, expected = next(ours).metrics["loss"], next(alone).metrics["loss"]
    return Pair(
        lambda: next(ours).metrics,
        lambda: next(alone).metrics,
        "one device",
        per=steps,
        error=disagreement(first, expected),
        tolerance=2e-2 if config.precision == "bfloat16" else 1e-4,
        precision=config.precision,
        note="efficiency is the ratio divided by the number of devices",
    )


def _running(config, mesh, steps: int):
    """Trains on a mesh, or on one device, without end."""
    setup, members = set_up(config, devices=1), len(config.seeds) > 1
    sizes = {"batch_size": config.batch_size, "num_points": config.num_points}
    given = setup.model, setup.task, setup.optimizer, config.curriculum
    step = training.make_step(*given, **sizes, mesh=mesh)
    place = devices.shard_members if members else devices.replicate
    state = place(initial_state(setup), mesh)
    step = devices.over_members(step, mesh) if members else step
    return training.run(step, state, 10**6, chunk_steps=steps)
