"""Moves arrays between files, host memory and devices with few copies."""

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

# Alignment of arrays on a CPU; JAX adopts memory with this alignment without a copy.
_ALIGNMENT = 64
# Bits of the exponent, which are all 1 only for NaN and infinity.
_EXPONENTS = {"bfloat16": 0x7F80, "float16": 0x7C00}
# Number of values checked together, few enough to stay in the cache.
_STRETCH = 2**18


def leaf_at(tree: Any, path: tuple[str | int, ...]) -> Any:
    """Returns what lies on a path of keys."""
    return functools.reduce(operator.getitem, path, tree)


def check_finite_leaf(leaf: np.ndarray) -> None:
    """Raises if a number is NaN or infinite; half precision is checked by its bits."""
    if count := _count_wrong(leaf):
        raise ValueError(f"expected finite numbers, got {count} NaN or infinite ones")


def _count_wrong(leaf: np.ndarray) -> int:
    """Number of NaN and infinite values."""
    bits = _EXPONENTS.get(leaf.dtype.name)
    if bits is None and not jnp.issubdtype(leaf.dtype, jnp.floating):
        return 0
    flat = leaf.ravel(order="K")
    flat = flat if bits is None else flat.view(np.uint16)
    count = 0
    for start in range(0, flat.size, _STRETCH):
        part = flat[start : start + _STRETCH]
        wrong = ~np.isfinite(part) if bits is None else (part & bits) == bits
        count += int(np.count_nonzero(wrong))
    return count


def to_device(leaf: np.ndarray, dtype: np.dtype) -> jax.Array:
    """Puts an array on the device; a writable one of that dtype is not copied first."""
    ready = leaf.dtype == dtype and leaf.flags.c_contiguous and leaf.flags.writeable
    return jax.device_put(leaf if ready else cast(leaf, dtype))


def cast(leaf: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Returns a row-major copy in another dtype, aligned so that JAX can adopt it.

    Raises if a finite number becomes infinite.
    """
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        raise ValueError(f"expected floating point, got {leaf.dtype}")
    size = leaf.size * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    out = memory[start : start + size].view(dtype).reshape(leaf.shape)
    if leaf.dtype == dtype and dtype.itemsize == 2:
        # NumPy's own copy of bfloat16 is slow, since it copies one number at a time.
        out.view(np.uint16)[...] = leaf.view(np.uint16)
        return out
    with np.errstate(over="ignore"):
        out[...] = leaf
    narrower = float(jnp.finfo(dtype).max) < float(jnp.finfo(leaf.dtype).max)
    if narrower and _count_wrong(out) and not _count_wrong(leaf):
        got, name = float(np.abs(leaf).max()), dtype.name
        raise ValueError(f"expected values that {name} can hold, got {got:.4g}")
    return out


def _named_sharding(leaf: Any) -> NamedSharding | None:
    """Returns the sharding of an array over a mesh, if it has one."""
    sharding = getattr(leaf, "sharding", None)
    return sharding if isinstance(sharding, NamedSharding) else None


def by_rows(batch: Any, like: Any) -> Any:
    """Splits the rows of a batch over the axis "batch" of the mesh of ``like``."""
    mesh = getattr(getattr(like, "sharding", None), "mesh", None)
    if mesh is None or len(batch[0]) % mesh.shape["batch"]:
        return batch
    sharding = NamedSharding(mesh, PartitionSpec("batch"))

    def put(rows):
        return jax.make_array_from_callback(rows.shape, sharding, lambda i: rows[i])

    return jax.tree.map(put, batch)


def spans_processes(tree: Any) -> bool:
    """Whether devices of other processes hold a part of some array."""
    leaves = jax.tree.leaves(tree)
    return not all(getattr(leaf, "is_fully_addressable", True) for leaf in leaves)


def on_host(leaf: Any) -> np.ndarray:
    """Returns a whole array in host memory; all processes that share it call this."""
    whole = replicated(leaf).addressable_data(0) if spans_processes(leaf) else leaf
    return np.asarray(whole)


def gathered(leaf: Any, place: int) -> Any:
    """Returns a whole matrix on one device of this process.

    ``place`` says which device, modulo their number, so that work on the matrices of a
    module can be dealt out.
    """
    if _named_sharding(leaf) is None:
        return leaf
    if spans_processes(leaf):
        leaf = replicated(leaf).addressable_data(0)
    own = [
        d for d in leaf.sharding.device_set if d.process_index == jax.process_index()
    ]
    devices = sorted(own, key=lambda device: device.id)
    return jax.device_put(leaf, devices[place % len(devices)])


def spread_like(leaf: Any, old: Any) -> Any:
    """Distributes a stack of matrices over devices as ``old`` is distributed."""
    known = _named_sharding(old)
    if known is None:
        return leaf
    spec = PartitionSpec(*[None] * (leaf.ndim - old.ndim), *known.spec)
    sharding = NamedSharding(known.mesh, spec)
    if old.is_fully_addressable:
        return jax.device_put(leaf, sharding)
    host = np.asarray(leaf)
    return jax.make_array_from_callback(host.shape, sharding, lambda i: host[i])


def replicated(leaf: Any) -> Any:
    """Returns the whole array on every device that holds a part of it."""
    sharding = _named_sharding(leaf)
    if sharding is None or leaf.is_fully_replicated:
        return leaf
    whole = NamedSharding(sharding.mesh, PartitionSpec())
    return jax.jit(lambda x: x, out_shardings=whole)(leaf)
