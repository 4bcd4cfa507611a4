"""Layer norm with linear map: plain JAX, the kernel, and the kernel of its gradient."""

import functools
import math

import jax
import jax.numpy as jnp

from icltheory.kernels._gradients import weight_gradients
from icltheory.kernels._norm import chain, layer_norm, linear, product, wide
from icltheory.kernels._pallas import Rows, launch, pl
from icltheory.kernels._tiles import (
    indices,
    load,
    load_norm,
    load_vector,
    pieces,
    store_norm_gradient,
    store_sum,
    twin_gradient,
)

__all__ = ["run", "twin"]


def twin(x, scale, bias, W, b):
    """Returns ``layer_norm(x) @ W + b``."""
    return linear(layer_norm(x, scale, bias), W, b)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def run(options, x, scale, bias, W, b):
    """Launches the kernel on rows; with ``through`` it also returns x."""
    return _forward(options, x, scale, bias, W, b)[0]


def _forward(options, x, scale, bias, W, b):
    tile, columns = options.tile, W.shape[1]
    like = [jnp.zeros(0, array.dtype) for array in (x, scale, bias, W, b)]
    args = (x, scale, bias, W.astype(x.dtype), b)
    broad = math.gcd(columns, tile.columns)
    (y,) = launch(
        functools.partial(_kernel, tile=tile, broad=broad),
        *args,
        grid=(columns // broad, -(-x.shape[0] // tile.rows)),
        outputs=[((x.shape[0], columns), x.dtype)],
        name="norm_linear",
        interpret=options.interpret,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    return ((y, x) if options.through else (y,)), (args, like)


def _kernel(x, scale, bias, W, b, out, *, tile, broad):
    inner = pieces(x.shape[1])
    rows = Rows(pl.program_id(1) * tile.rows, tile.rows, x.shape[0])
    _, norm = load_norm((x, scale, bias), rows, inner)
    size = min(tile.depth or broad, broad)
    first = pl.program_id(0) * broad

    def step(i, _):
        columns = first + i * size + indices(size)
        y = chain(norm, [load(W, piece, columns) for piece in inner])
        rows.store(out, columns, y + load_vector(b, columns, x.dtype))
        return _

    jax.lax.fori_loop(0, broad // size, step, 0)


def _backward(options, kept, cotangents):
    args, like = kept
    dtypes, tile = [array.dtype for array in like], options.backward
    dy, *skip = cotangents
    if tile is None:
        dx, *rest = twin_gradient(twin, dtypes, args, dy)
        return (sum(skip, dx), *rest)
    x, scale, bias, W, b = args
    width, columns = W.shape
    tiles = -(-x.shape[0] // tile.rows)
    sums = ((tiles, columns + 2 * width), wide(x.dtype))
    dx, norm, sums = launch(
        functools.partial(_gradient_kernel, tile=tile),
        *args[:-1],
        dy,
        *skip,
        grid=(tiles,),
        outputs=[(x.shape, x.dtype), (x.shape, x.dtype), sums],
        name="norm_linear_gradient",
        interpret=options.interpret,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    dW, db, dscale, dbias = weight_gradients(
        [(norm, dy, dtypes[3])],
        sums,
        (b, scale, bias),
        depth=tile.depth,
        interpret=options.interpret,
    )
    return dx, dscale, dbias, dW, db


def _gradient_kernel(x, scale, bias, W, dy, *refs, tile):
    *skip, dx, norm_out, sums = refs
    columns = W.shape[1]
    inner, program = pieces(x.shape[1]), pl.program_id(0)
    rows = Rows(program * tile.rows, tile.rows, x.shape[0])
    moments, norm = load_norm((x, scale, bias), rows, inner)
    for part, piece in zip(norm, inner, strict=True):
        rows.store(norm_out, piece, part)
    size = math.gcd(tile.columns, columns)

    def step(i, totals):
        along = i * size + indices(size)
        d = rows.load(dy, along)
        store_sum(sums, program, along, d)
        return [
            total + product(d, load(W, piece, along).T)
            for total, piece in zip(totals, inner, strict=True)
        ]

    totals = [jnp.zeros((tile.rows, c.size), sums.dtype) for c in inner]
    totals = jax.lax.fori_loop(0, columns // size, step, totals)
    store_norm_gradient(
        (x, scale, dx, sums),
        rows,
        program,
        inner,
        moments,
        totals,
        skip[0] if skip else None,
        columns,
    )


run.defvjp(_forward, _backward)
