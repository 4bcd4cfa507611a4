"""Arrays on their way from a file to the device, with no more copies than needed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

# Where the CPU's arrays begin; from there JAX takes memory over without a copy.
_ALIGNMENT = 64


# Bits of the exponent: all of them are 1 in NaN and infinity alone.
_EXPONENTS = {"bfloat16": 0x7F80, "float16": 0x7C00}
# Numbers that are looked at together, few enough to stay in the cache.
_STRETCH = 2**18


def check_finite_leaf(leaf: np.ndarray) -> None:
    """Raises if a number is NaN or infinite; half precision by its bits, as is fast."""
    bits = _EXPONENTS.get(leaf.dtype.name)
    if bits is None and not jnp.issubdtype(leaf.dtype, jnp.floating):
        return
    flat = leaf.ravel(order="K")
    flat = flat if bits is None else flat.view(np.uint16)
    count = 0
    for start in range(0, flat.size, _STRETCH):
        part = flat[start : start + _STRETCH]
        wrong = ~np.isfinite(part) if bits is None else (part & bits) == bits
        count += np.count_nonzero(wrong)
    if count:
        raise ValueError(f"expected finite numbers, got {count} NaN or infinite ones")


def to_device(leaf: np.ndarray, dtype: np.dtype) -> jax.Array:
    """An array on the device; a writable one is not copied first."""
    ready = leaf.dtype == dtype and leaf.flags.c_contiguous and leaf.flags.writeable
    return jax.device_put(leaf if ready else cast(leaf, dtype))


def cast(leaf: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A copy in rows, in another dtype, in memory that JAX takes over as it is."""
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        raise ValueError(f"expected floating point, got {leaf.dtype}")
    size = leaf.size * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    out = memory[start : start + size].view(dtype).reshape(leaf.shape)
    if leaf.dtype == dtype and dtype.itemsize == 2:
        # NumPy copies bfloat16 one number after another.
        out.view(np.uint16)[...] = leaf.view(np.uint16)
        return out
    with np.errstate(over="ignore"):
        out[...] = leaf
    if dtype == np.float16 and leaf.dtype != dtype:
        _check_range(leaf, out)
    return out


def _check_range(leaf, out):
    if not np.all(np.isfinite(out)) and np.all(np.isfinite(leaf)):
        largest = float(np.abs(leaf).max())
        raise ValueError(f"expected values that float16 can hold, got {largest:.3g}")


def _sharding(leaf: Any) -> Any:
    """Where an array is; parameters may be NumPy's, which are nowhere."""
    return getattr(leaf, "sharding", None)


def by_rows(batch: Any, like: Any, axis: str = "batch") -> Any:
    """A batch with its rows split along an axis of the mesh that ``like`` is on."""
    mesh = getattr(_sharding(like), "mesh", None)
    if mesh is None or len(batch[0]) % mesh.shape[axis]:
        return batch
    sharding = NamedSharding(mesh, PartitionSpec(axis))

    def put(rows):
        return jax.make_array_from_callback(rows.shape, sharding, lambda i: rows[i])

    return jax.tree.map(put, batch)


def spans_processes(tree: Any) -> bool:
    """Whether devices of other processes hold a part of some array."""
    leaves = jax.tree.leaves(tree)
    return not all(getattr(leaf, "is_fully_addressable", True) for leaf in leaves)


def on_host(leaf: Any) -> np.ndarray:
    """An array whole in this process's memory; all processes that share it call it."""
    whole = replicated(leaf).addressable_data(0) if spans_processes(leaf) else leaf
    return np.asarray(whole)


def gathered(leaf: Any, place: int) -> Any:
    """A matrix whole on one device of this process; as it is where it is on one only.

    Args:
        leaf: The matrix.
        place: Which device; numbers beyond the last begin anew, so that work on the
            matrices of a module can be dealt out by their number.
    """
    if not isinstance(_sharding(leaf), NamedSharding):
        return leaf
    if spans_processes(leaf):
        leaf = replicated(leaf).addressable_data(0)
    own = [
        d for d in leaf.sharding.device_set if d.process_index == jax.process_index()
    ]
    devices = sorted(own, key=lambda device: device.id)
    return jax.device_put(leaf, devices[place % len(devices)])


def spread_like(leaf: Any, old: Any) -> Any:
    """An array of matrices, as ``old`` is spread; axes in front are kept whole."""
    if not isinstance(_sharding(old), NamedSharding):
        return leaf
    further = [None] * (leaf.ndim - old.ndim)
    spec = PartitionSpec(*further, *old.sharding.spec)
    sharding = NamedSharding(old.sharding.mesh, spec)
    if old.is_fully_addressable:
        return jax.device_put(leaf, sharding)
    host = np.asarray(leaf)
    return jax.make_array_from_callback(host.shape, sharding, lambda i: host[i])


def replicated(leaf: Any) -> Any:
    """The array whole on every device that has a part of it."""
    if not isinstance(_sharding(leaf), NamedSharding) or leaf.is_fully_replicated:
        return leaf
    whole = NamedSharding(leaf.sharding.mesh, PartitionSpec())
    return jax.jit(lambda x: x, out_shardings=whole)(leaf)
