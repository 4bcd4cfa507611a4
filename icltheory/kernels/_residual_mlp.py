"""MLP with layer norm and residual: plain JAX, the kernel, and its gradient."""

import functools
import math

import jax
import jax.numpy as jnp

from icltheory.kernels._gradients import weight_gradients
from icltheory.kernels._norm import (
    chain,
    gelu_and_slope,
    layer_norm,
    linear,
    product,
    wide,
)
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


def twin(x, scale, bias, W_in, b_in, W_out, b_out):
    """Returns ``x + gelu(layer_norm(x) @ W_in + b_in) @ W_out + b_out``."""
    hidden = linear(layer_norm(x, scale, bias), W_in, b_in)
    return x + linear(jax.nn.gelu(hidden, approximate=True), W_out, b_out)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def run(options, x, scale, bias, W_in, b_in, W_out, b_out):
    """Launches the kernel on rows of tokens."""
    return _forward(options, x, scale, bias, W_in, b_in, W_out, b_out)[0]


def _forward(options, x, *weights):
    scale, bias, W_in, b_in, W_out, b_out = weights
    tile, like = options.tile, [jnp.zeros(0, w.dtype) for w in (x, *weights)]
    args = (x, scale, bias, W_in.astype(x.dtype), b_in, W_out.astype(x.dtype), b_out)
    (y,) = launch(
        functools.partial(_kernel, tile=tile),
        *args,
        grid=(-(-x.shape[0] // tile.rows),),
        outputs=[(x.shape, x.dtype)],
        name="residual_mlp",
        interpret=options.interpret,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    return y, (args, like)


def _kernel(x, scale, bias, W_in, b_in, W_out, b_out, out, *, tile):
    columns = pieces(x.shape[1])
    rows = Rows(pl.program_id(0) * tile.rows, tile.rows, x.shape[0])
    _, norm = load_norm((x, scale, bias), rows, columns)
    size = math.gcd(W_in.shape[1], tile.columns)

    def step(i, totals):
        hidden = i * size + indices(size)
        u = chain(norm, [load(W_in, piece, hidden) for piece in columns])
        a, _ = gelu_and_slope(u + load_vector(b_in, hidden, x.dtype))
        a = a.astype(x.dtype)
        return [
            total + product(a, load(W_out, hidden, piece))
            for total, piece in zip(totals, columns, strict=True)
        ]

    totals = [jnp.zeros((tile.rows, c.size), wide(x.dtype)) for c in columns]
    totals = jax.lax.fori_loop(0, W_in.shape[1] // size, step, totals)
    for total, piece in zip(totals, columns, strict=True):
        y = total + load_vector(b_out, piece, x.dtype)
        rows.store(out, piece, y + rows.load(x, piece))


def _backward(options, kept, g):
    args, like = kept
    dtypes, tile = [array.dtype for array in like], options.backward
    if tile is None:
        return twin_gradient(twin, dtypes, args, g)
    x, scale, bias, W_in, b_in, W_out, b_out = args
    width, hidden = W_in.shape
    tiles = -(-x.shape[0] // tile.rows)
    flat, tall = (x.shape, x.dtype), ((x.shape[0], hidden), x.dtype)
    sums = ((tiles, hidden + 3 * width), wide(x.dtype))
    dx, norm, a, du, sums = launch(
        functools.partial(_gradient_kernel, tile=tile),
        *args[:-1],
        g,
        grid=(tiles,),
        outputs=[flat, flat, tall, tall, sums],
        name="residual_mlp_gradient",
        interpret=options.interpret,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    dW_in, dW_out, db_in, dscale, dbias, db_out = weight_gradients(
        [(norm, du, dtypes[3]), (a, g, dtypes[5])],
        sums,
        (b_in, scale, bias, b_out),
        depth=tile.depth,
        interpret=options.interpret,
    )
    return dx, dscale, dbias, dW_in, db_in, dW_out, db_out


def _gradient_kernel(x, scale, bias, W_in, b_in, W_out, g, *outputs, tile):
    dx, norm_out, a_out, du_out, sums = outputs
    width, hiddens = W_in.shape
    columns, program = pieces(width), pl.program_id(0)
    rows = Rows(program * tile.rows, tile.rows, x.shape[0])
    moments, norm = load_norm((x, scale, bias), rows, columns)
    for part, piece in zip(norm, columns, strict=True):
        rows.store(norm_out, piece, part)
    d = [rows.load(g, piece) for piece in columns]
    size = math.gcd(hiddens, tile.columns)

    def step(i, totals):
        hidden = i * size + indices(size)
        into = [load(W_in, piece, hidden) for piece in columns]
        u = chain(norm, into) + load_vector(b_in, hidden, x.dtype)
        a, slope = gelu_and_slope(u)
        rows.store(a_out, hidden, a)
        du = chain(d, [load(W_out, hidden, piece).T for piece in columns]) * slope
        store_sum(sums, program, hidden, du)
        du = du.astype(x.dtype)
        rows.store(du_out, hidden, du)
        return [total + product(du, w.T) for total, w in zip(totals, into, strict=True)]

    totals = [jnp.zeros((tile.rows, c.size), sums.dtype) for c in columns]
    totals = jax.lax.fori_loop(0, hiddens // size, step, totals)
    for piece in columns:
        store_sum(sums, program, hiddens + 2 * width + piece, rows.load(g, piece))
    refs = (x, scale, dx, sums)
    store_norm_gradient(refs, rows, program, columns, moments, totals, g, hiddens)


run.defvjp(_forward, _backward)
