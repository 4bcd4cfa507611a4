"""Linear map with residual: plain JAX, the kernel, and the kernel of its gradient."""

import functools
import math

import jax
import jax.numpy as jnp

from icltheory.kernels._gradients import weight_gradients
from icltheory.kernels._norm import linear, product, wide
from icltheory.kernels._pallas import Rows, launch, pl
from icltheory.kernels._tiles import (
    indices,
    load,
    load_vector,
    store_sum,
    twin_gradient,
)

__all__ = ["run", "twin"]


def twin(h, x, W, b):
    """Returns ``h + x @ W + b``."""
    return h + linear(x, W, b)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def run(options, h, x, W, b):
    """Launches the kernel on rows of tokens."""
    return _forward(options, h, x, W, b)[0]


def _forward(options, h, x, W, b):
    tile = options.tile
    like = [jnp.zeros(0, array.dtype) for array in (x, W, b)]
    args = (x, W.astype(x.dtype), b)
    broad = math.gcd(W.shape[1], tile.columns)
    (y,) = launch(
        functools.partial(_kernel, tile=tile, broad=broad),
        h,
        *args,
        grid=(W.shape[1] // broad, -(-x.shape[0] // tile.rows)),
        outputs=[(h.shape, h.dtype)],
        name="linear_residual",
        interpret=options.interpret,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    return y, (args, like)


def _kernel(h, x, W, b, out, *, tile, broad):
    columns = pl.program_id(0) * broad + indices(broad)
    rows = Rows(pl.program_id(1) * tile.rows, tile.rows, x.shape[0])
    inputs = W.shape[0]
    depth = math.gcd(inputs, tile.depth or inputs)

    def step(i, total):
        inner = i * depth + indices(depth)
        return total + product(rows.load(x, inner), load(W, inner, columns))

    total = jnp.zeros((tile.rows, broad), wide(x.dtype))
    total = jax.lax.fori_loop(0, inputs // depth, step, total)
    total = total + load_vector(b, columns, x.dtype)
    rows.store(out, columns, total + rows.load(h, columns))


def _backward(options, kept, g):
    args, like = kept
    dtypes, tile = [array.dtype for array in like], options.backward
    if tile is None:
        return (g, *twin_gradient(linear, dtypes, args, g))
    x, W, b = args
    inputs, outputs = W.shape
    tiles = -(-x.shape[0] // tile.rows)
    broad = math.gcd(inputs, tile.columns)
    dx, sums = launch(
        functools.partial(_gradient_kernel, tile=tile, broad=broad),
        W,
        g,
        grid=(inputs // broad, tiles),
        outputs=[(x.shape, x.dtype), ((tiles, outputs), wide(x.dtype))],
        name="linear_residual_gradient",
        interpret=options.interpret,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    dW, db = weight_gradients(
        [(x, g, dtypes[1])],
        sums,
        (b,),
        depth=tile.depth,
        interpret=options.interpret,
    )
    return g, dx, dW, db


def _gradient_kernel(W, g, dx, sums, *, tile, broad):
    inputs, outputs = W.shape
    place, program = pl.program_id(0), pl.program_id(1)
    rows = Rows(program * tile.rows, tile.rows, g.shape[0])
    columns = place * broad + indices(broad)
    depth = math.gcd(outputs, tile.depth or 64)

    def step(i, total):
        inner = i * depth + indices(depth)
        return total + product(rows.load(g, inner), load(W, columns, inner).T)

    total = jnp.zeros((tile.rows, broad), sums.dtype)
    total = jax.lax.fori_loop(0, outputs // depth, step, total)
    rows.store(dx, columns, total)
    # The programs of these rows share the sums of the bias in turns.
    for turn in range(0, outputs // depth, inputs // broad):
        inner = (turn + place) * depth + indices(depth)

        def add(inner=inner):
            store_sum(sums, program, inner, rows.load(g, inner))

        pl.when(turn + place < outputs // depth)(add)


run.defvjp(_forward, _backward)
