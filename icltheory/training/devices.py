"""Devices for training: meshes, sharding, and programs of several processes.

A mesh has two axes. Along ``"models"`` the members of an ensemble are split; nothing
ever passes between them. Along ``"data"`` the batch of each member is split; the
gradient is summed over it every step. With one member the first axis has length 1.
"""

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from icltheory._checks import check_positive_int, wrong

__all__ = [
    "check_batch",
    "device_mesh",
    "initialize_distributed",
    "over_members",
    "replicate",
    "shard_batch",
    "shard_members",
    "to_host",
]

_MODELS, _DATA = "models", "data"


def device_mesh(num_devices: int | None = None, *, models: int = 1) -> Mesh:
    """Mesh over the devices of all processes, or ``num_devices`` of them.

    The members of an ensemble are split into ``models`` parts. Devices that share the
    batch of a member are neighbours, so that the sums of gradients stay within a host
    where they can.

    Example:
        >>> dict(device_mesh(1).shape)
        {'models': 1, 'data': 1}
    """
    check_positive_int("models", models)
    devices = jax.devices()
    count = len(devices) if num_devices is None else num_devices
    if not 1 <= count <= len(devices):
        raise ValueError(f"num_devices: expected 1 to {len(devices)}, got {count}")
    if count % models:
        raise ValueError(f"models: expected a divisor of {count} devices, got {models}")
    return jax.make_mesh(
        (models, count // models),
        (_MODELS, _DATA),
        axis_types=(AxisType.Auto, AxisType.Auto),
        devices=devices[:count],
    )


def initialize_distributed(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> None:
    """Joins this process to a program of several processes.

    Call it before anything touches a device. Every process then runs the same program.
    Without arguments the launcher's environment (Slurm's ``srun``, Open MPI) says who
    takes part: one process per GPU, or one per host with all its GPUs. With arguments
    (``host:port`` of process 0, the number of processes, and this one's) the process
    takes all devices that it sees. If a process dies, the others end too, within two
    minutes; the run resumes from its last checkpoint.
    """
    if coordinator is None and num_processes is None and process_id is None:
        _join_launched()
        return
    if coordinator is None:
        raise ValueError("coordinator: expected the host:port of process 0, got None")
    if num_processes is None or process_id is None:
        raise ValueError(
            "process_id, num_processes: expected both with a coordinator, got "
            f"{process_id} and {num_processes}"
        )
    if not 0 <= process_id < num_processes:
        raise wrong("process_id", f"0 to {num_processes - 1}", process_id)
    # Under Slurm, automatic detection would give each process only one GPU of its host.
    jax.distributed.initialize(
        coordinator, num_processes, process_id, cluster_detection_method="deactivate"
    )


def _join_launched() -> None:
    try:
        jax.distributed.initialize(local_device_ids=_whole_host())
    except ValueError as error:
        raise ValueError(
            "coordinator: expected the host:port of process 0 or a launcher such as "
            f"srun, got neither ({error})"
        ) from error


def _whole_host() -> list[int] | None:
    """Returns the host's GPUs if Slurm started one task per GPU, else JAX's choice."""
    tasks = os.environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    gpus = os.environ.get("SLURM_GPUS_ON_NODE", "")
    alone = tasks == "1" or (tasks.startswith("1(") and "," not in tasks)
    return list(range(int(gpus))) if alone and gpus.isdigit() else None


def check_batch(batch_size: int, accumulation: int, mesh: Mesh | None) -> None:
    """Raises unless every device gets equally many prompts of each part of a batch."""
    if batch_size % accumulation:
        raise wrong(
            "accumulation", f"a divisor of batch_size {batch_size}", accumulation
        )
    devices = 1 if mesh is None else mesh.shape[_DATA]
    if (batch_size // accumulation) % devices:
        expected = f"a multiple of {devices} devices x {accumulation} parts"
        raise wrong("batch_size", expected, batch_size)


def shard_batch(tree, mesh: Mesh | None):
    """Splits the leading axis of every leaf over ``"data"``; identity without a mesh.

    It stands inside a jitted function.
    """
    if mesh is None:
        return tree
    return jax.lax.with_sharding_constraint(
        tree, NamedSharding(mesh, PartitionSpec(_DATA))
    )


def replicate(tree, mesh: Mesh | None):
    """Puts the same values on every device of the mesh; identity without one."""
    return _place(tree, mesh, PartitionSpec())


def shard_members(tree, mesh: Mesh | None):
    """Puts members, the leading axis, on their devices; identity without a mesh.

    Every process holds the whole tree and gets global arrays, split over ``"models"``.
    """
    parts = 1 if mesh is None else mesh.shape[_MODELS]
    for leaf in jax.tree.leaves(tree):
        members = np.shape(leaf)[0]
        if members % parts:
            raise wrong("models", f"a divisor of {members} members", parts)
    return _place(tree, mesh, PartitionSpec(_MODELS))


def _place(tree, mesh: Mesh | None, spec: PartitionSpec):
    if mesh is None:
        return tree
    sharding = NamedSharding(mesh, spec)

    def place(leaf):
        host = np.asarray(leaf)
        return jax.make_array_from_callback(host.shape, sharding, lambda i: host[i])

    return jax.tree.map(place, tree)


def over_members(step: Callable[..., Any], mesh: Mesh | None) -> Callable[..., Any]:
    """Returns the training step of all ensemble members, each on its own devices.

    ``step`` is that of one member with the same mesh; the result takes states of
    :func:`shard_members`. The program of a device has no exchange between members.
    """
    return jax.vmap(step, spmd_axis_name=None if mesh is None else _MODELS)


def to_host(tree):
    """Copies a tree from all devices to NumPy arrays in every process.

    All processes call it.
    """

    def fetch(leaf):
        if getattr(leaf, "is_fully_addressable", True) or leaf.is_fully_replicated:
            return np.asarray(leaf)
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))

    return jax.tree.map(fetch, tree)
