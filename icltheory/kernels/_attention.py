r"""Two kernels for causal attention on the packed projection, and for its gradient.

One program takes one tile of queries of one head of one prompt, reads q, k and v where
the projection left them, and never writes a score. With :math:`P_{ij} =
2^{a_{ij} - l_i}`, :math:`a = q k^\top \log_2 e / \sqrt{c}` and :math:`l` the base-2
log-sum-exp of the rows, the gradients are

.. math:: dV = P^\top dO, \quad dS = P \circ (dO\, V^\top - \delta), \quad
          dQ = dS\, K / \sqrt c, \quad dK = dS^\top Q / \sqrt c,
          \qquad \delta_i = \langle dO_i, O_i \rangle.

Keys beyond a prompt's end lie above the diagonal of every row that is kept, so the
causal mask is the only one that scores need.

The gradient of a head is one program, with all tiles of queries in registers: up to
:data:`LONGEST` tokens these do not spill. No two programs write one place, so that a
run repeats to the bit.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icltheory.kernels._pallas import Rows, dot, pl, power_of_two

_LOG2E = math.log2(math.e)
_Q, _K, _V, _OUT = 0, 1, 2, 0  # third of a packed row; outputs are laid out as queries


class Tile(NamedTuple):
    """Queries and keys that a program takes at a time, and its groups of 32 threads."""

    rows: int
    columns: int
    num_warps: int


# The fastest of nine on an H200 at 82 tokens in heads of 32; the table is in
# benchmarks/results/first-gpu.md.
FORWARD, BACKWARD = Tile(32, 32, 2), Tile(64, 64, 4)
LONGEST = 128  # two tiles of queries of the gradient, as at 82 tokens


class _Head:
    """Location of a program's head and prompt in packed and plain rows."""

    def __init__(self, num_heads: int, size: int):
        # They are read before any loop, since the interpreter does not know them within
        # one.
        self.head, self.prompt = pl.program_id(0), pl.program_id(1)
        within = jnp.arange(power_of_two(size), dtype=jnp.int32)
        self._columns = [
            (third * num_heads + self.head) * size + within for third in range(3)
        ]
        self._real = None if within.size == size else within < size
        self.scale = 1.0 / math.sqrt(size)
        self.width = within.size

    def load(self, ref: Any, third: int, rows: Rows) -> jax.Array:
        return rows.load(ref, self._columns[third], self.prompt, real=self._real)

    def store(self, ref: Any, third: int, rows: Rows, value: jax.Array) -> None:
        columns = self._columns[third]
        rows.store(ref, columns, value, self.prompt, real=self._real)

    def zeros(self, rows: int) -> jax.Array:
        return jnp.zeros((rows, self.width), jnp.float32)


class _Queries(NamedTuple):
    """A tile of queries with the inputs of its gradient."""

    rows: Rows
    q: jax.Array
    d_out: jax.Array
    lse: jax.Array
    delta: jax.Array


class _Keys(NamedTuple):
    rows: Rows
    k: jax.Array
    v: jax.Array


def _head(qkv: Any, num_heads: int) -> _Head:
    return _Head(num_heads, qkv.shape[2] // (3 * num_heads))


def _keys(head: _Head, qkv: Any, start: Any, size: int) -> _Keys:
    rows = Rows(start, size, qkv.shape[1])
    return _Keys(rows, head.load(qkv, _K, rows), head.load(qkv, _V, rows))


def forward_kernel(
    qkv: Any, out: Any, lse: Any, *, num_heads: int, rows: int, columns: int
) -> None:
    """Writes a tile of the output and of its log-sum-exp; grid (heads, B, tiles)."""
    head, i, T = _head(qkv, num_heads), pl.program_id(2), qkv.shape[1]
    mine = Rows(i * rows, rows, T)
    q = head.load(qkv, _Q, mine)

    def step(j, carry, causal):
        top, total, mixed = carry
        keys = _keys(head, qkv, j * columns, columns)
        scores = dot(q, keys.k.T) * (head.scale * _LOG2E)
        if causal:
            visible = mine.index[:, None] >= keys.rows.index[None, :]
            scores = jnp.where(visible, scores, -jnp.inf)
        new = jnp.maximum(top, scores.max(axis=1))
        weights, shrink = jnp.exp2(scores - new[:, None]), jnp.exp2(top - new)
        mixed = mixed * shrink[:, None] + dot(weights.astype(q.dtype), keys.v)
        return new, total * shrink + weights.sum(axis=1), mixed

    nothing = jnp.zeros((rows,), jnp.float32)
    carry = (nothing - jnp.inf, nothing, head.zeros(rows))
    below = 0  # tiles of keys that are visible to every query of this tile
    if pl.cdiv(T, rows) > 1:
        below = jax.lax.div(i * rows, np.int32(columns))
        carry = jax.lax.fori_loop(0, below, lambda j, c: step(j, c, False), carry)
    for tile in range(min(max(1, rows // columns), pl.cdiv(T, columns))):
        carry = step(below + tile, carry, True)
    top, total, mixed = carry
    head.store(out, _OUT, mine, mixed / total[:, None])
    mine.store(lse, None, top + jnp.log2(total), head.prompt, head.head)


def _queries(head: _Head, qkv, out, lse, d_out, start: Any, size: int) -> _Queries:
    rows = Rows(start, size, qkv.shape[1])
    ours, o = head.load(d_out, _OUT, rows), head.load(out, _OUT, rows)
    delta = (ours.astype(jnp.float32) * o.astype(jnp.float32)).sum(axis=1)
    saved = rows.load(lse, None, head.prompt, head.head)
    return _Queries(rows, head.load(qkv, _Q, rows), ours, saved, delta)


def _pair(head: _Head, queries: _Queries, keys: _Keys, causal: bool):
    """P^T and dS^T of a tile, in the dtype of the products; rows are keys."""
    # With rows as keys, both matrices are left factors as they are, and only dS is
    # transposed.
    scores = dot(keys.k, queries.q.T) * (head.scale * _LOG2E)
    weights = jnp.exp2(scores - queries.lse[None, :])
    if causal:
        visible = queries.rows.index[None, :] >= keys.rows.index[:, None]
        weights = jnp.where(visible, weights, 0.0)
    slope = weights * (dot(keys.v, queries.d_out.T) - queries.delta[None, :])
    return weights.astype(queries.q.dtype), slope.astype(queries.q.dtype)


def backward_kernel(
    qkv: Any,
    out: Any,
    lse: Any,
    d_out: Any,
    d_qkv: Any,
    *,
    num_heads: int,
    rows: int,
    columns: int,
) -> None:
    """Writes a head's gradient with five products per tile; grid (heads, B)."""
    head, T = _head(qkv, num_heads), qkv.shape[1]
    queries = [
        _queries(head, qkv, out, lse, d_out, start, rows) for start in range(0, T, rows)
    ]
    d_q = [head.zeros(rows) for _ in queries]
    for start in range(0, T, columns):
        keys = _keys(head, qkv, start, columns)
        d_k = d_v = head.zeros(columns)
        for i, ours in enumerate(queries):
            if (i + 1) * rows <= start:
                continue
            weights, slope = _pair(head, ours, keys, i * rows < start + columns - 1)
            d_v += dot(weights, ours.d_out)
            d_k += dot(slope, ours.q)
            d_q[i] += dot(slope.T, keys.k)
        head.store(d_qkv, _K, keys.rows, d_k * head.scale)
        head.store(d_qkv, _V, keys.rows, d_v)
    for ours, value in zip(queries, d_q, strict=True):
        head.store(d_qkv, _Q, ours.rows, value * head.scale)
