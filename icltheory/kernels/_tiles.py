"""Shared by the kernels of a block: options, loads, and layer norm by column pieces.

A tile's sides are powers of two, a model's width need not be: columns come in pieces of
at most 64, which also keeps fewer of a row's numbers in registers at a time.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import check_shape
from icltheory.kernels._norm import normalize, row_means, statistics, unit, wide
from icltheory.kernels._pallas import Rows, triton
from icltheory.kernels.plan import Tile

__all__ = [
    "Options",
    "check_kernel",
    "check_weights",
    "indices",
    "load",
    "load_norm",
    "load_vector",
    "pieces",
    "store_norm_gradient",
    "store_sum",
    "twin_gradient",
]

_PIECE = 64
_SMALLEST = 16  # smallest size of tensor cores along any axis


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a kernel: its tiles, and whether it also returns its input."""

    tile: Tile
    backward: Tile | None
    interpret: bool
    through: bool = False


def tensor_core_tiles(
    problem: Any, forward: list[tuple], backward: list[tuple]
) -> dict[str, list[Tile]]:
    """Candidate tiles for tensor cores; none in float32.

    Float32 has no tensor cores, and XLA's products are better there.
    """
    if problem.dtype == jnp.float32:
        return {"tile": [], "backward": []}
    return {
        name: [Tile(r, c, d, num_warps=w, num_stages=s) for r, c, d, w, s in sizes]
        for name, sizes in (("tile", forward), ("backward", backward))
    }


def check_weights(x: jax.Array, **shapes: tuple[Any, tuple[int | str, ...]]) -> None:
    """Raises unless arrays have the given shapes."""
    if x.ndim < 1 or not x.size:
        raise ValueError(f"x: expected rows of features, got shape {x.shape}")
    for name, (array, expected) in shapes.items():
        check_shape(name, array, expected)


def check_kernel(backward: Tile | None, tile: Tile | None, **sizes: int) -> None:
    """Raises for a gradient tile without a tile, and for sizes that no tile divides."""
    if tile is None and backward is not None:
        raise ValueError(f"backward: expected None where tile is None, got {backward}")
    for name, size in sizes.items():
        if tile is not None and size % _SMALLEST:
            raise ValueError(
                f"{name}: expected a multiple of {_SMALLEST} for the kernel, got {size}"
            )


def twin_gradient(twin: Callable, like: Sequence[Any], args: Sequence, d: Any) -> tuple:
    """Gradients of the plain version, each in the dtype of ``like``."""
    gradients = jax.vjp(twin, *args)[1](d)
    return tuple(g.astype(t) for g, t in zip(gradients, like, strict=True))


def pieces(size: int) -> list[jax.Array]:
    """Splits the indices of an axis into pieces."""
    piece = math.gcd(size, _PIECE)
    return [first + indices(piece) for first in range(0, size, piece)]


def indices(size: int) -> jax.Array:
    """Returns 0 to ``size - 1`` in 32 bits, even in x64 mode."""
    return jnp.arange(size, dtype=jnp.int32)


def load(ref: Any, rows: jax.Array, columns: jax.Array) -> jax.Array:
    """Reads ``ref[rows, columns]`` for indices within the array."""
    return triton.load(ref.at[rows[:, None], columns[None, :]])


def load_vector(ref: Any, index: jax.Array, dtype: Any) -> jax.Array:
    """Reads ``ref[index]`` as a row, rounded to ``dtype`` as Flax rounds biases."""
    return triton.load(ref.at[index]).astype(dtype).astype(wide(dtype))[None]


def store_sum(sums: Any, program: Any, columns: jax.Array, part: jax.Array) -> None:
    """Writes the column sums of ``part`` into this program's row of sums."""
    total = jnp.sum(part.astype(sums.dtype), axis=0)
    triton.store(sums.at[program, columns], total)


def load_norm(refs: Sequence[Any], rows: Rows, columns: Sequence[jax.Array]) -> tuple:
    """Reads rows of x and returns their statistics and layer norm by column pieces."""
    x, scale, bias = refs
    parts = [rows.load(x, piece) for piece in columns]
    moments = statistics(parts)
    return moments, [
        normalize(
            part,
            moments,
            triton.load(scale.at[piece]),
            triton.load(bias.at[piece]),
        )
        for part, piece in zip(parts, columns, strict=True)
    ]


def store_norm_gradient(refs, rows, program, columns, moments, d, skip, offset):
    """Writes gradients of layer norm's input, scale and bias, given its output's.

    Args:
        refs: References to x, the scale, the gradient by x, and the sums.
        rows: This program's rows.
        program: Its row of the sums.
        columns: Pieces of the columns' indices.
        moments: Statistics of the rows.
        d: Gradient by the norm's output, in the same pieces.
        skip: What a residual path adds to the gradient by x, or ``None``.
        offset: Column of the sums where the scale's begin; the bias's follow.
    """
    x, scale, dx, sums = refs
    along, level = [], []
    for piece, part in zip(columns, d, strict=True):
        normal = unit(rows.load(x, piece), moments)
        store_sum(sums, program, offset + piece, part * normal)
        store_sum(sums, program, offset + x.shape[1] + piece, part)
        part = part * load_vector(scale, piece, scale.dtype)
        along.append(part * normal)
        level.append(part)
    along, level = row_means(along), row_means(level)
    # Rows are read again, since the stores in between make the compiler release their
    # registers.
    for piece, part in zip(columns, d, strict=True):
        part = part * load_vector(scale, piece, scale.dtype) - level
        part = (part - unit(rows.load(x, piece), moments) * along) * moments[1]
        if skip is not None:
            part = part + rows.load(skip, piece)
        rows.store(dx, piece, part)
