"""Counts the kernel launches of one training step on a GPU in the compiled program.

A step of the published model (d = 20, 12 layers, width 256, 41 points, batch 64) in
bfloat16 is some hundreds of launches of microseconds each, so that their number says
more than the operations do. Without a GPU the program is compiled for an H200 all the
same, if ``jax[cuda12]`` or ``jax[cuda13]`` is installed. Nothing is run: the time is
that of compiling.
"""

import collections
import contextlib
import dataclasses
import functools
import importlib.util
import re
from typing import Any

import jax
import pytest
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks.garg import initial_state, published, set_up, training_step
from benchmarks.suite import Pair, case, on_gpu
from icltheory.training import OptimizerConfig
from icltheory.training.loop import lower

# Properties that the compiler needs of an absent device: those an H200 reports.
_H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 62914560 clock_rate_ghz: 1.98
  device_memory_size: 150000000000 registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
}
platform_name: "CUDA" device_description_str: "NVIDIA H200"
dnn_version_info { major: 9 minor: 20 }
runtime_version { major: 13 minor: 0 patch: 0 }
"""
KINDS = {"cublas": "GEMM", "cudnn": "cuDNN attention", "xla.gpu.triton": "Pallas"}
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}
_MUON = OptimizerConfig("muon", 2e-3, schedule="cosine", clip_norm=1.0)
_PACKED = "our kernel, blocks packed"
# Attention, whether parameters are packed, and changes of the config.
SIZES = {
    "cuDNN": ("cudnn", False, {}),
    "cuDNN, blocks packed": ("cudnn", True, {}),
    "our kernel": ("pallas", False, {}),
    _PACKED: ("pallas", True, {}),
    f"{_PACKED}, Muon": ("pallas", True, {"optimizer": _MUON}),
    f"{_PACKED}, posterior means": ("pallas", True, {"targets": "posterior"}),
    f"{_PACKED}, 8 seeds": ("pallas", True, {"seeds": tuple(range(8))}),
}


def count(text: str) -> collections.Counter[str]:
    """Counts launches by kind in one iteration of a compiled scan.

    An instruction of the loop's body is a launch, but for those that move no data; a
    computation that is called counts as what it launches.
    """
    bodies: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        head = re.match(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        if head:
            name = (head[1] or "") + head[2]
            bodies[name] = []
        elif name and " = " in line:
            bodies[name].append(line.strip())
    entry = next(lines for name, lines in bodies.items() if name.startswith("ENTRY"))
    loops = [m[1] for line in entry if (m := re.search(r"body=%?([\w.\-]+)", line))]
    if len(loops) != 1:
        raise ValueError(f"program: expected one loop at its top, got {len(loops)}")
    return _launches(bodies, loops[0])


def _launches(bodies: dict[str, list[str]], name: str) -> collections.Counter[str]:
    total: collections.Counter[str] = collections.Counter()
    for line in bodies[name]:
        operation = re.search(r" = .*? ([a-z][\w\-]*)\(", line)
        if operation is None or operation[1] in _FREE:
            continue
        called = re.search(r"(?:to_apply|calls)=%?([\w.\-]+)", line)
        if operation[1] == "call" and called:
            total += _launches(bodies, called[1])
            continue
        plain = operation[1] if operation[1] in ("fusion", "copy") else "other"
        total[next((KINDS[key] for key in KINDS if key in line), plain)] += 1
    return total


@contextlib.contextmanager
def device():
    """Yields a sharding on this machine's GPU, or on an H200 for the compiler only."""
    if on_gpu():
        yield jax.sharding.SingleDeviceSharding(jax.devices()[0])
        return
    plugins = ("jax_cuda12_plugin", "jax_cuda13_plugin")
    if not any(map(importlib.util.find_spec, plugins)):
        pytest.skip("needs a GPU or jax[cuda12] or jax[cuda13]")
    cuda = {"platform": "cuda", "topology": "1x1x1"}
    target = topologies.get_topology_desc(**cuda, target_config=_H200)
    mesh = topologies.make_mesh(target, (1,), ("one",))
    described = jax.sharding.AbstractDevice("NVIDIA H200", 132, "gpu")
    look = {"axis_types": (jax.sharding.AxisType.Auto,), "abstract_device": described}
    abstract = jax.sharding.AbstractMesh((1,), ("one",), **look)
    with jax.sharding.use_abstract_mesh(abstract):
        yield NamedSharding(mesh, PartitionSpec())


@case("Launches of one training step, d = 20, 12 layers, width 256, batch 64", SIZES)
def bench_launches(attention: Any, packed: bool, change: dict[str, Any]) -> Pair:
    """Compiles one program, and counts its launches."""
    config = published("paper", precision="bfloat16", **change)
    setup = set_up(config, devices=1)
    setup = dataclasses.replace(setup, model=setup.model.clone(attention=attention))

    def compile():
        with device() as place:
            shapes = jax.eval_shape(lambda: initial_state(setup))
            placed = functools.partial(jax.ShapeDtypeStruct, sharding=place)
            state = jax.tree.map(lambda leaf: placed(leaf.shape, leaf.dtype), shapes)
            step = training_step(setup, halves=False)  # as on a GPU, on any machine
            return lower(step, state, 10, packed=packed).compile()

    found = count(compile().as_text())
    facts = {f"{kind} launches": number for kind, number in sorted(found.items())}
    return Pair(
        compile,
        precision=config.precision,
        note="compiled, not run: the time is that of compiling",
        facts={"all launches": found.total(), **facts},
        cold=True,
    )
