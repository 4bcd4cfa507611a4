"""Counts the kernel launches of one training step on a GPU in the compiled program.

Command
    python -m benchmarks.launches

A step of the published model (d = 20, 12 layers, width 256, 41 points, batch 64) in
bfloat16 is some hundreds of launches of microseconds each, so that their number says
more than the operations do. Without a GPU the program is compiled for an H200 all the
same, if ``jax[cuda12]`` or ``jax[cuda13]`` is installed; nothing is run and no time
measured. About a minute.
"""

import collections
import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterator
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks import _alone
from benchmarks._suite import BenchmarkRow, Budget, Case, each
from experiments.garg_linear import (
    PRESETS,
    Config,
    initial_state,
    set_up,
    training_step,
)
from icltheory.kernels.attention import Attention
from icltheory.training import Curriculum, OptimizerConfig
from icltheory.training.loop import lower

# Properties that the compiler needs of an absent device: those an H200 reports.
_H200 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000
  l2_cache_size: 62914560
  clock_rate_ghz: 1.98
  device_memory_size: 150000000000
  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 20 }
runtime_version { major: 13 minor: 0 patch: 0 }
device_description_str: "NVIDIA H200"
"""
KINDS = ("GEMM", "cuDNN attention", "Pallas", "fusion", "copy", "other")
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}


def count(compiled: Any) -> collections.Counter[str]:
    """Counts launches by kind in one iteration of a compiled scan.

    An instruction of the loop's body is a launch, but for those that move no data; a
    computation that is called counts as what it launches.
    """
    bodies = _computations(compiled.as_text())
    entry = next(lines for name, lines in bodies.items() if name.startswith("ENTRY"))
    loops = [m[1] for line in entry if (m := re.search(r"body=%?([\w.\-]+)", line))]
    if len(loops) != 1:
        raise ValueError(f"program: expected one loop at its top, got {len(loops)}")
    return _launches(bodies, loops[0])


def _computations(text: str) -> dict[str, list[str]]:
    found, name = {}, None
    for line in text.splitlines():
        head = re.match(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        if head:
            name = (head[1] or "") + head[2]
            found[name] = []
        elif name and " = " in line:
            found[name].append(line.strip())
    return found


def _launches(bodies: dict[str, list[str]], name: str) -> collections.Counter[str]:
    total: collections.Counter[str] = collections.Counter()
    for line in bodies[name]:
        operation = re.search(r" = .*? ([a-z][\w\-]*)\(", line)
        if operation is None or operation[1] in _FREE:
            continue
        called = re.search(r"(?:to_apply|calls)=%?([\w.\-]+)", line)
        if operation[1] == "call" and called:
            total += _launches(bodies, called[1])
        else:
            total[_kind(operation[1], line)] += 1
    return total


def _kind(operation: str, line: str) -> str:
    if "cublas" in line:
        return "GEMM"
    if "cudnn" in line:
        return "cuDNN attention"
    if "xla.gpu.triton" in line:
        return "Pallas"
    return operation if operation in ("fusion", "copy") else "other"


@contextlib.contextmanager
def device():
    """Yields a sharding on this machine's GPU, or on an H200 for the compiler only."""
    if jax.default_backend() == "gpu":
        yield jax.sharding.SingleDeviceSharding(jax.devices()[0])
        return
    target = topologies.get_topology_desc(
        platform="cuda", target_config=_H200, topology="1x1x1"
    )
    mesh = topologies.make_mesh(target, (1,), ("one",))
    described = jax.sharding.AbstractDevice("NVIDIA H200", 132, "gpu")
    abstract = jax.sharding.AbstractMesh(
        (1,),
        ("one",),
        axis_types=(jax.sharding.AxisType.Auto,),
        abstract_device=described,
    )
    with jax.sharding.use_abstract_mesh(abstract):
        yield NamedSharding(mesh, PartitionSpec())


def launches_of(
    config: Config, attention: Attention, place: Any, packed: bool
) -> collections.Counter[str]:
    """Counts the launches by kind of one training step of a config."""
    setup = set_up(config, devices=1)
    setup = dataclasses.replace(setup, model=setup.model.clone(attention=attention))
    state = jax.eval_shape(lambda: initial_state(setup))
    state = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), state
    )
    step = training_step(setup, halves=False)  # as on a GPU, on any machine
    lowered = lower(step, state, 10, packed=packed)
    return count(lowered.compile())


def cases() -> dict[str, tuple[Config, Attention, bool]]:
    """Returns the compiled programs: config, attention, and whether it is packed."""
    base = dataclasses.replace(
        PRESETS["paper"],
        curriculum=Curriculum.none(20, 41),
        steps=100,
        precision="bfloat16",
    )
    muon = OptimizerConfig("muon", 2e-3, schedule="cosine", clip_norm=1.0)
    eight = dataclasses.replace(base, seeds=tuple(range(8)))
    muon_config = dataclasses.replace(base, optimizer=muon)
    posterior = dataclasses.replace(base, targets="posterior")
    return {
        "cuDNN": (base, "cudnn", False),
        "cuDNN, blocks packed": (base, "cudnn", True),
        "our kernel": (base, "pallas", False),
        "our kernel, blocks packed": (base, "pallas", True),
        "our kernel, blocks packed, Muon": (muon_config, "pallas", True),
        "our kernel, blocks packed, posterior means": (posterior, "pallas", True),
        "our kernel, blocks packed, 8 seeds": (eight, "pallas", True),
    }


def measure(budget: Budget) -> Iterator[BenchmarkRow]:
    """Counts the launches of each program, without running it."""

    def row(config, attention, packed):
        with device() as place:
            found = launches_of(config, attention, place, packed)
        facts = {f"{kind} launches": found[kind] for kind in KINDS}
        return BenchmarkRow(
            precision=config.precision,
            facts={"all launches": found.total()} | facts,
            note="compiled, not run",
        )

    yield from each(
        "Launches of one training step, d = 20, 12 layers, width 256, batch 64",
        budget,
        [
            Case(name, 30, functools.partial(row, *case))
            for name, case in cases().items()
        ],
    )


if __name__ == "__main__":
    _alone.main(measure)
