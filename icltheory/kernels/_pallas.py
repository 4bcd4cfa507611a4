"""Shared Pallas code of all kernels: launching, and rows beyond an array's end."""

import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp


class _Later:
    """A module that is imported when it is first used, as Pallas takes a second."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


pl: Any = _Later("jax.experimental.pallas")
triton: Any = _Later("jax.experimental.pallas.triton")

# XLA's compiler creates a hidden warning for each kernel argument, and LLVM's
# symbolizer, where it is installed, resolves the names of its stack trace. A kernel
# that compiles in 4 s took 18 s. LLVM reads this variable when it compiles.
os.environ.setdefault("LLVM_DISABLE_SYMBOLIZATION", "1")


def available() -> bool:
    """Whether the default backend can compile the kernels."""
    if jax.default_backend() != "gpu":
        return False
    return importlib.util.find_spec("jax.experimental.pallas.triton") is not None


def power_of_two(size: int) -> int:
    """Smallest power of two of at least ``size`` and 16, as tensor cores require."""
    return max(16, 1 << (size - 1).bit_length())


def dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """Product accumulated in float32; float32 factors are not rounded to TF32."""
    full = a.dtype == jnp.float32
    precision = jax.lax.Precision.HIGHEST if full else jax.lax.Precision.DEFAULT
    return jnp.dot(a, b, precision=precision, preferred_element_type=jnp.float32)


def launch(
    kernel: Callable[..., None],
    *inputs: jax.Array,
    grid: tuple[int, ...],
    outputs: Sequence[tuple[tuple[int, ...], Any]],
    name: str,
    interpret: bool,
    num_warps: int = 4,
) -> list[jax.Array]:
    """Runs ``kernel(*input_refs, *output_refs)`` once for each point of the grid.

    ``outputs`` are their shapes and dtypes, ``name`` is what a profile shows,
    ``interpret`` runs it as ordinary operations, for devices that cannot compile it,
    and a program has ``num_warps`` groups of 32 threads.
    """
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in outputs]
    call = pl.pallas_call(
        kernel,
        grid=grid,
        out_shape=shapes,
        interpret=interpret,
        name=name,
        compiler_params=triton.CompilerParams(num_warps=num_warps, num_stages=2),
    )
    return list(call(*inputs))


class Rows:
    """Rows ``start`` to ``start + size`` of an array; those beyond its end are 0.

    Columns are an array of indices, or ``None`` for one number per row; ``real`` says
    which of the columns exist where not all do.
    """

    def __init__(self, start: Any, size: int, length: int):
        # The dtype is int32, since x64 mode would double the cost of addresses.
        self.index = start + jnp.arange(size, dtype=jnp.int32)
        self.real = self.index < length

    def _place(self, ref: Any, columns: Any, lead: tuple[Any, ...], real: Any):
        if columns is None:
            return ref.at[(*lead, self.index)], self.real
        place = ref.at[(*lead, self.index[:, None], columns[None, :])]
        shape = (self.index.size, columns.size)
        mask = jnp.broadcast_to(self.real[:, None], shape)
        if real is not None:
            mask = mask & jnp.broadcast_to(real[None, :], shape)
        return place, mask

    def load(self, ref: Any, columns: Any, *lead: Any, real: Any = None) -> jax.Array:
        """Reads ``ref[*lead, rows, columns]``."""
        place, mask = self._place(ref, columns, lead, real)
        return triton.load(place, mask=mask, other=0.0)

    def store(
        self, ref: Any, columns: Any, value: jax.Array, *lead: Any, real: Any = None
    ) -> None:
        """Writes ``ref[*lead, rows, columns]``, nothing beyond the end."""
        place, mask = self._place(ref, columns, lead, real)
        triton.store(place, value.astype(ref.dtype), mask=mask)
