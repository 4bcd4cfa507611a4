"""Arrays between files, the host and devices; weights spread over several devices."""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from icltheory._typing import Array

__all__ = ["Placement", "shard_model"]

# Alignment of arrays on a CPU; JAX adopts memory with this alignment without a copy.
_ALIGNMENT = 64
# Bits of the exponent, which are all 1 only for NaN and infinity.
_EXPONENTS = {"bfloat16": 0x7F80, "float16": 0x7C00}
# Number of values checked together, few enough to stay in the cache.
_STRETCH = 2**18
_BATCH, _WEIGHTS = "batch", "weights"
# Matrices (out, in) that are split along their inputs; all others are split along their
# outputs, so that a block needs one sum after attention and one after its MLP.
_READERS = ("W_O", "W_out")


def leaf_at(tree: Any, path: tuple[str | int, ...]) -> Any:
    """Returns what lies on a path of keys."""
    return functools.reduce(operator.getitem, path, tree)


def check_finite_leaf(leaf: np.ndarray) -> None:
    """Raises if a number is NaN or infinite."""
    if count := _count_wrong(leaf):
        raise ValueError(f"expected finite numbers, got {count} NaN or infinite ones")


def _count_wrong(leaf: np.ndarray) -> int:
    """Number of NaN and infinite values; half precision is checked by its bits."""
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
    """Puts finite numbers on the device; writable ones of that dtype are not copied."""
    check_finite_leaf(leaf)
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


def _mesh_sharding(leaf: Any) -> NamedSharding | None:
    sharding = getattr(leaf, "sharding", None)
    return sharding if isinstance(sharding, NamedSharding) else None


def by_rows(batch: Any, like: Any) -> Any:
    """Splits the rows of a batch over the batch axis of the mesh of ``like``."""
    known = _mesh_sharding(like)
    if known is None or len(batch[0]) % known.mesh.shape[_BATCH]:
        return batch
    sharding = NamedSharding(known.mesh, PartitionSpec(_BATCH))

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
    """Returns a whole matrix on one device of this process, so that work is dealt out.

    ``place`` says which one, modulo their number.
    """
    if _mesh_sharding(leaf) is None:
        return leaf
    if spans_processes(leaf):
        leaf = replicated(leaf).addressable_data(0)
    devices = sorted(leaf.sharding.addressable_devices, key=lambda device: device.id)
    return jax.device_put(leaf, devices[place % len(devices)])


def spread_like(leaf: Any, old: Any) -> Any:
    """Distributes a stack of matrices over devices as ``old`` is distributed."""
    known = _mesh_sharding(old)
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
    sharding = _mesh_sharding(leaf)
    if sharding is None or leaf.is_fully_replicated:
        return leaf
    whole = NamedSharding(sharding.mesh, PartitionSpec())
    return jax.jit(lambda x: x, out_shardings=whole)(leaf)


class Placement:
    r"""How weights and batches are distributed over devices.

    With n devices in a row, queries, keys, values and the input of the MLP are split
    by output, and the output of attention and of the MLP by input: device k holds

    .. math:: W_Q^{(k)}, W_K^{(k)}, W_V^{(k)}, W_{in}^{(k)}
        \in \mathbb{R}^{m / n \times d} , \qquad
        W_O^{(k)}, W_{out}^{(k)} \in \mathbb{R}^{d \times m / n} ,

    and the outputs of a block are sums over devices. Tables of tokens and the head are
    split by token. A matrix whose side n does not divide is split along the other one,
    or kept whole on every device; norms and the biases of sums are kept whole. Programs
    are compiled for one device and split by XLA.

    Args:
        devices: A sequence of devices, which share the weights; or an array
            ``(groups, n)``, whose groups hold the weights once each and share a batch.

    Source: Shoeybi et al. (2019), section 3.
    """

    def __init__(self, devices: Sequence[jax.Device] | NDArray[np.object_]):
        grid = np.array(devices, dtype=object)
        if grid.ndim not in (1, 2) or not grid.size:
            wanted = "a sequence, or an array of two axes"
            raise ValueError(f"devices: expected {wanted}, got shape {grid.shape}")
        grid = np.atleast_2d(grid)
        if twice := [one for one in grid.flat if (grid == one).sum() > 1]:
            got = f"{twice[0]} twice"
            raise ValueError(f"devices: expected distinct devices, got {got}")
        auto = (AxisType.Auto, AxisType.Auto)
        self.mesh = Mesh(grid, (_BATCH, _WEIGHTS), axis_types=auto)

    @property
    def parts(self) -> int:
        """Number n of devices that share the weights."""
        return self.mesh.shape[_WEIGHTS]

    def of(self, path: Sequence[str | int], shape: Sequence[int]) -> NamedSharding:
        """Returns the sharding of the parameter leaf at a path of the tree."""
        spec: list[str | None] = [None] * len(shape)
        axis = split_axis(path, shape, self.parts)
        if axis is not None:
            spec[axis] = _WEIGHTS
        return NamedSharding(self.mesh, PartitionSpec(*spec))

    def put(self, path: Sequence[str | int], leaf: np.ndarray, dtype: Any) -> Array:
        """Casts a leaf onto its devices, each of which reads its own part of a file."""

        def part(index):
            check_finite_leaf(leaf[index])
            return cast(leaf[index], jnp.dtype(dtype))

        sharding = self.of(path, leaf.shape)
        return jax.make_array_from_callback(leaf.shape, sharding, part)


def split_axis(
    path: Sequence[str | int], shape: Sequence[int], parts: int
) -> int | None:
    """Axis along which a leaf is split into parts; None if it is replicated."""
    name = str(path[-2]) if path[-1] in ("weight", "bias") else str(path[-1])
    if len(shape) != 2 or not (path[0] in ("embed", "head") or "W_" in name):
        return None
    first = 1 if name in _READERS else 0
    return next((a for a in (first, 1 - first) if shape[a] % parts == 0), None)


def shard_model(model: Any, devices: Sequence[jax.Device] | NDArray[np.object_]) -> Any:
    """Returns the model with its weights on the devices of a :class:`Placement`.

    Example:
        >>> from icltheory.bridge import Architecture, Decoder, LanguageModel
        >>> arch = Architecture(family="gpt2", vocab_size=50, width=8, num_layers=2,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> model = LanguageModel(Decoder(arch), Decoder(arch).init(jax.random.key(0)))
        >>> spread = shard_model(model, jax.devices())
    """
    placement = Placement(devices)

    def put(path, leaf):
        keys: list[Any] = [getattr(key, "key", getattr(key, "idx", 0)) for key in path]
        return placement.put(keys, np.asarray(leaf), leaf.dtype)

    return model.replace(params=jax.tree_util.tree_map_with_path(put, model.params))
