"""Gradients of all weights and biases of a function in two launches."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from icltheory.kernels._norm import product, wide
from icltheory.kernels._pallas import Rows, launch, pl, triton
from icltheory.kernels._tiles import indices

__all__ = ["weight_gradients"]

_PROGRAMS = 132  # multiprocessors of an H200; constant for reproducible sums
_TILE = 128  # tile size of a weight's gradient, along both axes
_BLOCK = 4096  # elements per program of the last sum


def weight_gradients(
    pairs: Sequence[tuple[jax.Array, jax.Array, Any]],
    sums: jax.Array,
    vectors: Sequence[jax.Array],
    *,
    depth: int | None,
    interpret: bool,
) -> list[jax.Array]:
    """Returns ``left.T @ right`` of each pair, then the column sums, cut into vectors.

    The rows are shared among programs, each writes its part, and a second launch adds
    the parts in a fixed order: the same input gives the same bits.

    Args:
        pairs: Arrays (R, M) and (R, N) of one dtype, and the gradient's dtype.
        sums: One row of sums (tiles, C) from each program of the kernel before.
        vectors: Arrays whose sizes C consists of, and whose dtypes are kept.
        depth: Rows a step; ``None`` leaves the products to XLA.
        interpret: As :func:`icltheory.kernels._pallas.launch` takes it.
    """
    shapes = [(left.shape[1], right.shape[1]) for left, right, _ in pairs]
    lengths = [(v.size, v.dtype) for v in vectors]
    if depth is None:
        products = [product(left.T, right).astype(d) for left, right, d in pairs]
        return products + _totals([(sums, lengths)], interpret)
    parts = _parts([pair[:2] for pair in pairs], shapes, depth, interpret)
    sizes = [(math.prod(s), d) for s, (_, _, d) in zip(shapes, pairs, strict=True)]
    totals = _totals([(parts, sizes), (sums, lengths)], interpret)
    products = [t.reshape(s) for t, s in zip(totals, shapes, strict=False)]
    return products + totals[len(pairs) :]


def _parts(pairs, shapes, depth, interpret):
    """Partial products over shares of the rows, concatenated: (shares, elements)."""
    factors = [array for pair in pairs for array in pair]
    tiles = sum(map(_tiles, shapes))
    steps = -(-factors[0].shape[0] // depth)
    each = -(-steps // max(1, _PROGRAMS // tiles))
    shares = -(-steps // each)
    size = sum(map(math.prod, shapes))
    (parts,) = launch(
        functools.partial(_part_kernel, shapes=shapes, depth=depth, steps=each),
        *factors,
        grid=(tiles, shares),
        outputs=[((shares, size), wide(factors[0].dtype))],
        name="weight_gradients",
        interpret=interpret,
        num_warps=8,
        num_stages=3,
    )
    return parts


def _tiles(shape: tuple[int, int]) -> int:
    return math.prod(size // math.gcd(size, _TILE) for size in shape)


def _part_kernel(*refs, shapes, depth, steps):
    *factors, out = refs
    place, share, offset = pl.program_id(0), pl.program_id(1), 0
    for i, shape in enumerate(shapes):
        left, right = factors[2 * i : 2 * i + 2]

        def mine(left=left, right=right, place=place, offset=offset):
            _part(left, right, out, place, share, offset, depth, steps)

        pl.when((place >= 0) & (place < _tiles(shape)))(mine)
        place = place - _tiles(shape)
        offset += math.prod(shape)


def _part(left, right, out, place, share, offset, depth, steps):
    """Writes one tile of ``left.T @ right``, summed over one share of the rows."""
    M, N = left.shape[1], right.shape[1]
    high, broad = math.gcd(M, _TILE), math.gcd(N, _TILE)
    down = place // (N // broad) * high + indices(high)
    along = place % (N // broad) * broad + indices(broad)

    def step(i, total):
        rows = Rows((share * steps + i) * depth, depth, left.shape[0])
        return total + product(rows.load(left, down).T, rows.load(right, along))

    total = jnp.zeros((high, broad), out.dtype)
    total = jax.lax.fori_loop(0, steps, step, total)
    triton.store(out.at[share, offset + down[:, None] * N + along[None, :]], total)


def _totals(tables, interpret):
    """Column sums of each table, cut into vectors of the lengths and dtypes given."""
    cuts = [cut for _, lengths in tables for cut in lengths]
    blocks = [
        math.gcd(size, _BLOCK // _step(table))
        for table, lengths in tables
        for size, _ in lengths
    ]
    totals = launch(
        functools.partial(
            _total_kernel, blocks=blocks, counts=[len(cut) for _, cut in tables]
        ),
        *(table for table, _ in tables),
        grid=(sum(s // b for (s, _), b in zip(cuts, blocks, strict=True)),),
        outputs=[((size,), dtype) for size, dtype in cuts],
        name="totals",
        interpret=interpret,
    )
    return list(totals)


def _step(table) -> int:
    """Number of table rows that a program adds at a time."""
    return min(32, 1 << (table.shape[0] - 1).bit_length())


def _total_kernel(*refs, blocks, counts):
    place, i = pl.program_id(0), len(counts)
    for table, count in zip(refs, counts, strict=False):
        offset = 0
        for block, out in zip(
            blocks[i - len(counts) :][:count], refs[i:], strict=False
        ):

            def mine(table=table, out=out, block=block, place=place, offset=offset):
                columns = place * block + indices(block)
                total = _column_sums(table, offset + columns)
                triton.store(out.at[columns], total.astype(out.dtype))

            pl.when((place >= 0) & (place < out.size // block))(mine)
            place = place - out.size // block
            offset, i = offset + out.size, i + 1


def _column_sums(table, columns):
    size = _step(table)

    def step(i, total):
        return total + jnp.sum(
            Rows(i * size, size, table.shape[0]).load(table, columns), axis=0
        )

    total = jnp.zeros(columns.shape, table.dtype)
    return jax.lax.fori_loop(0, -(-table.shape[0] // size), step, total)
