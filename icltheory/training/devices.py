"""Where training runs: meshes over devices, and several processes as one program."""

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

__all__ = ["data_mesh", "initialize_distributed", "replicate", "shard_batch"]

_AXIS = "data"


def data_mesh(num_devices: int | None = None) -> Mesh:
    """One-axis mesh over the devices of all processes; batches are split along it.

    Args:
        num_devices: How many devices to take; all unless given.

    Returns:
        A mesh with the axis ``"data"``.

    Raises:
        ValueError: if there are fewer devices than asked for.

    Example:
        >>> data_mesh(1).axis_names
        ('data',)

    References:
        Data parallelism by GSPMD. Verified by ``tests/training/test_devices.py``.
    """
    devices = jax.devices()
    count = len(devices) if num_devices is None else num_devices
    if not 1 <= count <= len(devices):
        raise ValueError(f"num_devices: expected 1 to {len(devices)}, got {count}")
    return jax.make_mesh(
        (count,), (_AXIS,), axis_types=(AxisType.Auto,), devices=devices[:count]
    )


def initialize_distributed(
    coordinator: str | None, num_processes: int, process_id: int
) -> None:
    """Joins this process to a training run of several processes.

    Call it before anything touches a device. Every process then runs the same program.

    Args:
        coordinator: ``host:port`` of process 0.
        num_processes: How many processes take part.
        process_id: Which of them this is, from 0.

    Returns:
        Nothing.

    Raises:
        ValueError: if there is no coordinator or ``process_id`` is out of range.

    References:
        ``jax.distributed``. Verified by ``tests/training/test_devices.py``.
    """
    if coordinator is None:
        raise ValueError("coordinator: expected the host:port of process 0, got none")
    if not 0 <= process_id < num_processes:
        raise ValueError(
            f"process_id: expected 0 to {num_processes - 1}, got {process_id}"
        )
    jax.distributed.initialize(coordinator, num_processes, process_id)


def shard_batch(tree, mesh: Mesh | None):
    """Splits the leading axis of every leaf over the mesh; identity without one.

    Args:
        tree: Pytree of arrays inside a jitted function.
        mesh: Mesh of :func:`data_mesh`, or ``None``.

    Returns:
        The same values, constrained to be split.

    References:
        Data parallelism by GSPMD. Verified by ``tests/training/test_devices.py``.
    """
    if mesh is None:
        return tree
    return jax.lax.with_sharding_constraint(
        tree, NamedSharding(mesh, PartitionSpec(_AXIS))
    )


def replicate(tree, mesh: Mesh | None):
    """Puts the same value on every device of the mesh; identity without one.

    Args:
        tree: Pytree of arrays that every process holds.
        mesh: Mesh of :func:`data_mesh`, or ``None``.

    Returns:
        The same values as global arrays.

    References:
        Data parallelism by GSPMD. Verified by ``tests/training/test_devices.py``.
    """
    if mesh is None:
        return tree
    sharding = NamedSharding(mesh, PartitionSpec())

    def place(leaf):
        host = np.asarray(leaf)
        return jax.make_array_from_callback(host.shape, sharding, lambda i: host[i])

    return jax.tree.map(place, tree)
