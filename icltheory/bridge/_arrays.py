"""Arrays on their way from a file to the device, with no more copies than needed."""

import jax
import jax.numpy as jnp
import numpy as np

# Where the CPU's arrays begin; from there JAX takes memory over without a copy.
_ALIGNMENT = 64


# Bits of the exponent: all of them are 1 in NaN and infinity alone.
_EXPONENTS = {"bfloat16": 0x7F80, "float16": 0x7C00}


def check_finite_leaf(leaf: np.ndarray) -> None:
    """Raises if a number is NaN or infinite; half precision by its bits, as is fast."""
    bits = _EXPONENTS.get(leaf.dtype.name)
    if bits is not None:
        wrong = (np.asarray(leaf).view(np.uint16) & bits) == bits
    elif jnp.issubdtype(leaf.dtype, jnp.floating):
        wrong = ~np.isfinite(leaf)
    else:
        return
    if wrong.any():
        count = np.count_nonzero(wrong)
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
    with np.errstate(over="ignore"):
        out[...] = leaf
    if dtype == np.float16 and leaf.dtype != dtype:
        _check_range(leaf, out)
    return out


def _check_range(leaf, out):
    if not np.all(np.isfinite(out)) and np.all(np.isfinite(leaf)):
        largest = float(np.abs(leaf).max())
        raise ValueError(f"expected values that float16 can hold, got {largest:.3g}")
